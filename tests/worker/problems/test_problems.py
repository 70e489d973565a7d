"""Tests of problems: equal positions give equal prompts, and held-out questions never train."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

from backend.base.errors import InvalidConfig, PluginFailed
from backend.config.problems import FileProblem, HubProblem, ProblemSource, ReasoningGymProblem
from backend.config.run import RunConfig
from backend.config.sources import pin_sources
from worker.problems.file import load_file
from worker.problems.hub import load_folders, load_hub
from worker.problems.mixture import build_mixture
from worker.problems.reasoning_gym import ReasoningGym

SOURCES_ADAPTER: TypeAdapter[list[ProblemSource]] = TypeAdapter(list[ProblemSource])


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def products(count: int = 40, **extra: Any) -> list[dict[str, Any]]:
    return [{"prompt": f"{n}*{n}=?", "answer": n * n, **extra} for n in range(count)]


def make_mixture(
    problems: list[dict[str, Any]], datasets_dir: Path, *, seed: int = 0, order: str = "shuffled"
):
    return build_mixture(
        SOURCES_ADAPTER.validate_python(problems),
        seed=seed,
        order=order,
        datasets_dir=datasets_dir,
        hf_online=False,
    )


def squares(
    tmp_path: Path, rows: list[dict[str, Any]] | None = None, *, seed=0, shuffled=True, **fields: Any
):
    write_rows(tmp_path / "squares.jsonl", rows or products())
    return load_file(FileProblem(path="squares.jsonl", **fields), tmp_path, seed=seed, shuffled=shuffled)


def test_a_row_becomes_a_prompt_and_keeps_its_other_fields(tmp_path):
    rows = [{"prompt": f"q{n}", "answer": n, "id": f"row{n}", "domain": "odd", "level": n} for n in range(4)]
    problem = squares(tmp_path, rows, shuffled=False, eval_fraction=0.25, instruction="Box it.")
    prompts = [problem.sample(index, "train") for index in range(3)]
    prompt = next(prompt for prompt in prompts if prompt.id.endswith(("row1", "row2")))
    number = int(prompt.id[-1])
    assert prompt.text == f"q{number}\nBox it."
    assert (prompt.answer, prompt.domain, prompt.columns) == (str(number), "odd", {"level": number})


def test_every_epoch_sees_each_training_row_once_in_a_different_order(tmp_path):
    problem = squares(tmp_path)
    rows = 36  # 40 rows, of which a tenth is held out
    first = [problem.sample(index, "train").text for index in range(rows)]
    second = [problem.sample(index, "train").text for index in range(rows, 2 * rows)]
    assert len(set(first)) == rows
    assert set(first) == set(second)
    assert first != second


def test_held_out_rows_are_the_same_for_every_seed_and_never_train(tmp_path):
    source = FileProblem(path=write_rows(tmp_path / "squares.jsonl", products()).name)
    first, second = (load_file(source, tmp_path, seed=seed, shuffled=True) for seed in (1, 2))
    held_out = [first.sample(index, "eval").text for index in range(4)]
    assert held_out == [second.sample(index, "eval").text for index in range(4)]
    trained_texts = {first.sample(index, "train").text for index in range(72)}
    assert not trained_texts & set(held_out)
    assert first.sample(0, "train") != second.sample(0, "train")


def test_a_split_field_takes_precedence_and_evaluation_rows_never_train(tmp_path):
    rows = [*products(10, split="train"), *products(3, split="test")]
    problem = squares(tmp_path, rows)
    held_out = {problem.sample(index, "eval").text for index in range(6)}
    trained_texts = {problem.sample(index, "train").text for index in range(20)}
    assert held_out == {"0*0=?", "1*1=?", "2*2=?"}
    assert trained_texts == {f"{n}*{n}=?" for n in range(3, 10)}


def test_a_resumed_run_whose_file_has_changed_is_refused(tmp_path):
    path = tmp_path / "squares.jsonl"
    write_rows(path, products())
    launched_config = pin_sources(RunConfig(problems=[FileProblem(path=path.name)]), datasets_dir=tmp_path)
    resumed_config = RunConfig.model_validate(launched_config.model_dump(mode="json"))
    settings = {"seed": 0, "order": "shuffled", "datasets_dir": tmp_path, "hf_online": False}
    assert build_mixture(resumed_config.problems, **settings).prompts(0, 1)
    write_rows(path, [*products(), {"prompt": "one more", "answer": "1"}])
    with pytest.raises(InvalidConfig, match=r"squares\.jsonl has changed since launch: expected SHA-256"):
        build_mixture(resumed_config.problems, **settings)


def hub_folder(tmp_path: Path, **splits: list[dict[str, Any]]) -> Path:
    for split, rows in splits.items():
        folder = tmp_path / "main" / split
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / "0000.parquet")
    return tmp_path


def questions(prefix: str, count: int) -> list[dict[str, Any]]:
    return [{"question": f"{prefix}{n}", "answer": f"so\n#### {n}", "other": n} for n in range(count)]


def test_a_hub_dataset_is_read_from_parquet_with_its_held_out_split(tmp_path):
    folder = hub_folder(tmp_path, train=questions("t", 9), test=questions("e", 3))
    source = HubProblem(dataset="openai/gsm8k", subset="main", eval_split="test", answer_after="####")
    problem = load_folders(source, folder, folder, seed=0, shuffled=True)
    assert {problem.sample(index, "train").text[:2] for index in range(9)} == {f"t{n}" for n in range(9)}
    held_out = problem.sample(0, "eval")
    assert held_out.text == f"e{held_out.answer}\nPut the final answer inside \\boxed{{}}."


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"subset": "other"}, "the dataset has no Parquet or JSONL file for other/train"),
        ({"prompt_field": "q"}, "row 1: field 'q' is missing; the fields are 'question', 'answer', 'other'"),
        ({"answer_field": "blank"}, "row 1: field 'blank' is missing"),
    ],
)
def test_missing_files_or_columns_of_a_hub_dataset_are_reported(tmp_path, fields, reason):
    folder = hub_folder(tmp_path, train=questions("t", 5))
    source = HubProblem.model_validate({"dataset": "a/b", "subset": "main", **fields})
    with pytest.raises(ValueError, match=reason):
        load_folders(source, folder, None, seed=0, shuffled=True)


def test_a_hub_name_while_offline_is_refused_with_the_setting_to_change():
    with pytest.raises(ValueError, match="HF_ONLINE is off: set HF_ONLINE=1"):
        load_hub(HubProblem(dataset="openai/gsm8k"), seed=0, shuffled=True, hf_online=False)


@pytest.fixture(scope="module")
def chain_sum():
    problem = ReasoningGym(ReasoningGymProblem(task="chain_sum", task_config={"max_terms": 2}), seed=0)
    yield problem
    problem.close()


def test_a_task_gives_questions_with_an_instruction_and_the_position_for_its_scorer(chain_sum):
    prompt = chain_sum.sample(0, "train")
    question, instruction = prompt.text.rsplit("\n", 1)
    first_operand, _, second_operand = question.removesuffix(" =").rpartition(": ")[2].partition(" ")
    assert instruction == "Put the final answer inside \\boxed{}."
    assert int(prompt.answer) == int(first_operand) + int(second_operand.replace(" ", ""))
    assert prompt.columns["reasoning_gym"]["task"] == "chain_sum"


def test_no_question_is_both_trained_on_and_held_out(chain_sum):
    trained_texts = {chain_sum.sample(index, "train").text for index in range(300)}
    held_out = {chain_sum.sample(index, "eval").text for index in range(100)}
    assert len(held_out) == 100
    assert not trained_texts & held_out


PLUGIN_SOURCE = """
from worker.prompt import Prompt

class Letters:
    name = "letters"
    def __init__(self, *, seed, text="ab"):
        self.text = text
    def sample(self, index, split):
        return Prompt(f"letters/{split}/{index}", f"{self.text} {split} {index}", self.text, "letters")

class Raising(Letters):
    def sample(self, index, split):
        raise KeyError("lost")

class Wordy(Letters):
    def sample(self, index, split):
        return "ab"

class Empty(Letters):
    def sample(self, index, split):
        return Prompt("x", "  ", "1", "letters")

class Spoken(Letters):
    def sample(self, index, split):
        return Prompt("x", "hi", "1", "letters", messages=[{"role": "human", "content": "hi"}])

class Heavy(Letters):
    def sample(self, index, split):
        return Prompt("x", "hi", "1", "letters", columns={"image": "x" * 300_000})

class Odd(Letters):
    def sample(self, index, split):
        return Prompt("x", "hi", "1", "letters", columns={"image": b"x"})

class Leaky(Letters):
    def sample(self, index, split):
        return Prompt(f"x/{index}", f"question {index % 1000}", "1", "letters")
"""


@pytest.fixture
def plugin_package(tmp_path: Path, monkeypatch):
    """A user's package with entry points, installed where the trainer finds it."""
    (tmp_path / "demo_problems.py").write_text(PLUGIN_SOURCE)
    info = tmp_path / "demo_problems-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo_problems\nVersion: 1.0\n")
    points = "\n".join(
        f"{name} = demo_problems:{name.title()}"
        for name in ("letters", "raising", "wordy", "empty", "leaky", "spoken", "heavy", "odd")
    )
    (info / "entry_points.txt").write_text(f"[grpolab.problems]\n{points}\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_users_problem_is_used_by_name_with_its_parameters(plugin_package, tmp_path):
    mixture = make_mixture([{"name": "plugin", "entry_point": "letters", "params": {"text": "xy"}}], tmp_path)
    [prompt] = mixture.prompts(7, 1)
    assert (prompt.text, prompt.problem, prompt.domain) == ("xy train 7", "letters", "custom")


@pytest.mark.parametrize(
    ("name", "params", "reason"),
    [
        ("raising", {}, "problem plugin 'raising' raised KeyError: 'lost'"),
        ("wordy", {}, "problem plugin 'wordy': expected a Prompt, got str"),
        ("spoken", {}, "train prompt 0: message 1: role: expected one of system, user, assistant, tool, got"),
        ("heavy", {}, "train prompt 0: columns: expected at most 256,000 bytes of JSON"),
        ("odd", {}, "train prompt 0: Object of type bytes is not JSON serializable"),
        (
            "empty",
            {},
            "problem plugin 'empty', train prompt 0: text must be text that is not empty, got '  '",
        ),
        (
            "letters",
            {"size": 3},
            "problem plugin 'letters' raised TypeError: .*unexpected keyword argument 'size'",
        ),
    ],
)
def test_a_misbehaving_problem_fails_with_an_explanation(plugin_package, tmp_path, name, params, reason):
    with pytest.raises(PluginFailed, match=reason):
        make_mixture([{"name": "plugin", "entry_point": name, "params": params}], tmp_path)


def three_sources(tmp_path: Path) -> list[dict[str, Any]]:
    write_rows(tmp_path / "squares.jsonl", products())
    return [
        {"name": "sums", "weight": 2},
        {"name": "sums", "operands": 2, "domain": "easy"},
        {"name": "file", "path": "squares.jsonl", "domain": "squares"},
    ]


def test_the_evaluation_set_is_distinct_fixed_and_never_trained_on(tmp_path):
    sources = three_sources(tmp_path)
    mixture = make_mixture(sources, tmp_path, seed=1)
    held_out = mixture.evaluation_set(100)
    assert Counter(prompt.problem for prompt in held_out) == {
        "sums": 50,
        "sums#2": 25,
        "file:squares.jsonl": 4,
    }
    assert len({prompt.text for prompt in held_out}) == 79  # the file holds out only 4 rows of 40
    assert held_out == make_mixture(sources, tmp_path, seed=2).evaluation_set(100)
    trained_texts = {prompt.text for prompt in mixture.prompts(0, 4000)}
    assert not trained_texts & {prompt.text for prompt in held_out}


def test_questions_held_out_by_one_source_are_not_trained_through_another(plugin_package, tmp_path):
    mixture = make_mixture([{"name": "plugin", "entry_point": "leaky"}], tmp_path)
    held_out = {prompt.text for prompt in mixture.evaluation_set(20)}
    assert held_out == {f"question {number}" for number in range(20)}
    trained_texts = {prompt.text for prompt in mixture.prompts(0, 100)}
    assert not trained_texts & held_out
