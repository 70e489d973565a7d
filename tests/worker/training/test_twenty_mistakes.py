"""Twenty mistakes in policy, data and rewards, and the messages they get.

Refused at launch where that can be known, else by the trainer before its first step: one sentence that says
what to do, never a traceback.
"""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from backend.base.errors import GrpoLabError, InvalidConfig
from backend.runs.checks import runnable
from worker.policy.model import BUILT_IN, load_policy
from worker.problems.mixture import build_mixture
from worker.rewards.score import Scorer

ROW = {"prompt": "1+1=?", "answer": "2"}
FILE = {"problems": [{"name": "file", "path": "rows.jsonl"}]}
MINE = {"policy": {"name": "mine"}, "sampling": {"max_new_tokens": 64}}


@pytest.fixture
def lab(settings):
    """A good policy `mine` and a good file `rows.jsonl`."""
    shutil.copytree(BUILT_IN["tiny"], settings.models_dir / "mine")
    settings.datasets_dir.mkdir(parents=True)
    write_rows(settings, [{"prompt": f"{n}+1=?", "answer": str(n + 1)} for n in range(50)])
    return settings


def write_rows(settings, rows):
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    (settings.datasets_dir / "rows.jsonl").write_text(text)


def model(settings, name):
    return settings.models_dir / "mine" / name


def without(name):
    return lambda settings: model(settings, name).unlink()


def changed(name, change):
    """A JSON file of the policy after a change."""

    def apply(settings):
        document = json.loads(model(settings, name).read_text())
        change(document)
        model(settings, name).write_text(json.dumps(document))

    return apply


def rows(*documents):
    return lambda settings: write_rows(settings, documents)


def cut_weights(settings):
    data = model(settings, "model.safetensors").read_bytes()
    model(settings, "model.safetensors").write_bytes(data[: len(data) // 2])


def lacking_weights(settings):
    tensors = load_file(model(settings, "model.safetensors"))
    kept_tensors = dict(sorted(tensors.items())[: len(tensors) // 2])
    save_file(kept_tensors, model(settings, "model.safetensors"), metadata={"format": "pt"})


def more_tokens(document):
    vocabulary = document["model"]["vocab"]
    document["added_tokens"] += [
        {"id": len(vocabulary) + 100 + n, "content": f"<extra{n}>", "special": False, "single_word": False,
         "lstrip": False, "rstrip": False, "normalized": False}
        for n in range(600)
    ]  # fmt: skip


def nothing(_settings):
    pass


def without_tokenizer(settings):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        model(settings, name).unlink()


def another_size(document):
    document["hidden_size"] = 64


def no_object(settings):
    model(settings, "tokenizer.json").write_text('{"model": 1}')


AT_LAUNCH = [
    ("no such policy", nothing, {"policy": {"name": "absent"}}, "HF_ONLINE"),
    ("no config", without("config.json"), MINE, "config.json"),
    ("config is no JSON", lambda lab: model(lab, "config.json").write_text("{"), MINE, "config.json"),
    ("no tokenizer", without_tokenizer, MINE, "no tokenizer"),
    ("no weights", without("model.safetensors"), MINE, "no weights"),
    ("brings code", changed("config.json", lambda d: d.update(auto_map={"x": "y"})), MINE, "never run"),
    ("no such file", lambda lab: (lab.datasets_dir / "rows.jsonl").unlink(), FILE, "rows.jsonl"),
    ("empty file", rows(), FILE, "rows.jsonl"),
    ("broken line", rows(ROW, "{"), FILE, "line 2"),
    ("no answers", rows({"prompt": "1+1=?"}), FILE, "answer"),
    ("a path outside", nothing, {"problems": [{"name": "file", "path": "../rows.jsonl"}]}, "path"),
    ("no such task", nothing, {"problems": [{"name": "reasoning_gym", "task": "chess_boxing"}]}, "task"),
    ("hub while offline", nothing, {"problems": [{"name": "hub", "dataset": "openai/gsm8k"}]}, "HF_ONLINE"),
    ("no such reward", nothing, {"rewards": [{"name": "plugin", "entry_point": "absent"}]}, "absent"),
    ("too long for the policy", nothing, {"sampling": {"max_new_tokens": 5000}}, "context"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("mistake", "config", "phrase"), [case[1:] for case in AT_LAUNCH], ids=[c[0] for c in AT_LAUNCH]
)
def test_a_mistake_that_can_be_known_is_refused_at_launch(lab, mistake, config, phrase):
    mistake(lab)
    with pytest.raises(InvalidConfig) as refused:
        runnable(lab, config)
    assert phrase in refused.value.detail
    assert_is_a_sentence(refused.value.detail)


LATER = [
    ("weights cut off", cut_weights, MINE, "cannot be opened as a causal LM"),
    ("weights that lack tensors", lacking_weights, MINE, "the weights lack"),
    ("another size than the weights", changed("config.json", another_size), MINE, "cannot be opened"),
    ("broken tokenizer", no_object, MINE, "cannot be opened"),
    ("more tokens than the model", changed("tokenizer.json", more_tokens), MINE, "tokens, the model only"),
    ("file changed since the launch", rows(ROW, ROW | {"prompt": "2+2=?"}), FILE, "changed"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("mistake", "config", "phrase"), [case[1:] for case in LATER], ids=[c[0] for c in LATER]
)
def test_a_mistake_that_only_the_trainer_meets_is_a_sentence(lab, mistake, config, phrase):
    runnable_config = runnable(lab, config)
    mistake(lab)
    with pytest.raises(GrpoLabError) as refused:
        open_everything(runnable_config, lab)
    assert phrase in refused.value.detail
    assert_is_a_sentence(refused.value.detail)


def open_everything(config, settings):
    """What a trainer opens before its first step."""
    load_policy(config.policy, settings)
    build_mixture(
        config.problems, seed=0, order="shuffled", datasets_dir=settings.datasets_dir, hf_online=False
    ).close()
    Scorer(config.rewards).close()


def assert_is_a_sentence(text):
    assert "Traceback" not in text
    assert "\n" not in text.strip()
    assert len(text) < 700
