"""Tests of reward functions per completion, per batch as in TRL, and async."""

from contextlib import closing
from pathlib import Path

import pytest

from backend.base.errors import PluginFailed
from backend.config.rewards import PluginReward
from worker.prompt import Prompt
from worker.rewards.plugins import MAX_CONSECUTIVE_FAILURES, PluginTerm

PLUGIN_SOURCE = '''
import asyncio, os, time

def trl_accuracy(completions, answer, **kwargs):
    """As TRL's own: completions and columns as lists, anything else in kwargs."""
    return [1.0 if text == right else 0.0 for text, right in zip(completions, answer)]

def trl_conversation(prompts, completions, **kwargs):
    assert prompts[0] == [{"role": "user", "content": "?"}]
    return [float(len(completion[0]["content"])) for completion in completions]

def columns(prompts, completions, level, weight=2, **kwargs):
    return [None if one is None else one * weight for one in level]

def lengths(completions, completion_ids):
    return [len(ids) for ids in completion_ids]

async def async_batch(completions, **kwargs):
    await asyncio.sleep(0.01)
    return [len(text) for text in completions]

async def waiting(prompt, text):
    await asyncio.sleep(1)
    return float(text)

now = most = 0

async def counted(prompt, text):
    global now, most
    now, most = now + 1, max(most, now + 1)
    while most < 64:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    now -= 1
    return most

def slow(prompt, text):
    started = time.monotonic()
    time.sleep(1)
    return started

async def moody(prompt, text):
    if text == "1":
        raise ValueError("no")
    if text == "2":
        await asyncio.sleep(60)
    return "good" if text == "3" else float(text)

async def dying(prompt, text):
    os._exit(3)

def too_few(completions, **kwargs):
    return [1.0]

def nonsense(completions, **kwargs):
    return {"score": 1}

def spotty(completions, **kwargs):
    return [float("nan"), "good", None, 4][:len(completions)]

def stuck(completions, **kwargs):
    time.sleep(60)

def scratch(prompt, text):
    path = os.path.join(os.environ["TMPDIR"], "note")
    found = os.path.exists(path)
    open(path, "w").write(text)
    time.sleep(0.2)
    return float(found or open(path).read() != text)

def steps(prompt, text):
    return [float(step) for step in text.split()] if text else None
'''


@pytest.fixture
def call_function(tmp_path: Path, monkeypatch):
    """A function that returns a plugin function's rewards of texts, and its failure messages."""
    (tmp_path / "kinds.py").write_text(PLUGIN_SOURCE)
    info = tmp_path / "kinds-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kinds\nVersion: 1.0\n")
    names = [
        line.partition("def ")[2].partition("(")[0] for line in PLUGIN_SOURCE.splitlines() if "def " in line
    ]
    (info / "entry_points.txt").write_text(
        "[grpolab.rewards]\n" + "\n".join(f"{name} = kinds:{name}" for name in names)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def called(name, texts, *, rows=None, ids=(), **fields):
        rows = rows or [{}] * len(texts)
        prompts = [Prompt(str(index), "?", "7", "file", columns=row) for index, row in enumerate(rows)]
        with closing(PluginTerm(PluginReward(entry_point=name, **fields))) as term:
            scores = term.rewards(list(zip(prompts, texts, strict=True)), ids)
            return scores, term.failures, term.last_failure

    return called


def test_a_trl_function_is_called_unchanged_with_columns_as_lists(call_function):
    assert call_function("trl_accuracy", ["7", "8"]) == ([1, 0], 0, "")


def test_a_conversational_dataset_gives_messages(call_function):
    assert call_function("trl_conversation", ["ab", "c"], messages=True)[0] == [2, 1]


def test_512_completions_of_a_one_second_async_judge_keep_their_order(call_function):
    texts = [str(number) for number in range(512)]
    assert call_function("waiting", texts, concurrency=128) == ([float(text) for text in texts], 0, "")


def test_one_failing_completion_of_an_async_function_leaves_the_others_scored(call_function):
    scores, failures, failure = call_function("moody", ["0", "1", "4", "2", "3", "5"], timeout_seconds=3)
    assert scores == [0, None, 4, None, None, 5]
    assert failures == 3
    assert "expected a finite number or None, got 'good'" in failure


def test_a_batch_of_the_wrong_length_leaves_all_unscored_and_is_reported(call_function):
    scores, failures, failure = call_function("too_few", ["a", "b"])
    assert (scores, failures) == ([None, None], 2)
    assert "expected a list of 2 numbers, one for each completion, got 1 of them" in failure


@pytest.mark.parametrize("name", ["nonsense", "stuck"])
def test_a_batch_with_an_invalid_answer_or_a_timeout_leaves_all_unscored(call_function, name):
    assert call_function(name, ["a", "b"], timeout_seconds=1)[:2] == ([None, None], 2)


def test_an_async_function_that_ends_its_process_fails_the_run_after_five(call_function):
    with pytest.raises(PluginFailed, match=rf"code 3 \({MAX_CONSECUTIVE_FAILURES} failed calls in a row\)"):
        call_function("dying", ["a"] * MAX_CONSECUTIVE_FAILURES)


@pytest.mark.parametrize(
    ("aggregate", "score"), [("min", 1), ("mean", 2), ("last", 3), ("product", 6), ("sum", 6)]
)
def test_step_scores_become_one_reward(call_function, aggregate, score):
    scores, failures, _ = call_function("steps", ["2 1 3", "", " "], per="step", aggregate=aggregate)
    assert scores == [score, None, None]
    assert failures == 1  # the blank text has no step
