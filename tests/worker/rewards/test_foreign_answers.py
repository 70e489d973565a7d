"""Tests that unexpected answers of processes, servers and models raise the error of their reader."""

from contextlib import closing
from pathlib import Path

import pytest

from backend.base.sandbox.errors import Died, excerpt
from backend.base.sandbox.process import Sandbox
from backend.base.settings import Settings
from backend.base.text import read_json
from backend.config.rewards import PluginReward
from backend.config.served_rewards import JudgeReward
from worker.rewards.endpoint import NoScore
from worker.rewards.judge import Judge
from worker.rewards.plugins import PluginTerm
from worker.rewards.programs import read_ended
from worker.rollout.openenv.answers import Lost
from worker.rollout.openenv.answers import read_answer as read_observation
from worker.rollout.tool_calls import _json_call

TEST_DIRECTORY = Path(__file__).parent
DEEP_JSON = "[" * 400 + "]" * 400
LONE_SURROGATE = "\ud800"


@pytest.mark.parametrize(
    "text", [DEEP_JSON, "[" * 100_000, '{"a":' * 100_000, "1" * 5000, b"\xff", "", "nope"]
)
def test_invalid_or_deeply_nested_json_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"nested|Expecting|Exceeds|decode"):
        read_json(text)


def test_a_sandboxed_process_that_answers_with_a_deep_value_counts_as_dead(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TEST_DIRECTORY))
    with Sandbox("deep_answers", additional_paths=(TEST_DIRECTORY,)) as sandbox:
        with pytest.raises(Died):
            sandbox.run_operation("deep", seconds=60)
        assert sandbox.run_operation("flat", seconds=60) == {"a": 1}


def test_every_reader_raises_its_own_error_for_an_invalid_answer():
    judge = Judge(JudgeReward(), Settings(judge_url="http://127.0.0.1:1/v1", judge_model="m"))
    for text in (DEEP_JSON, '{"score": ' + DEEP_JSON + "}", '{"score": 1' + "0" * 400 + "}"):
        with pytest.raises(NoScore):
            judge._grades({"choices": [{"message": {"content": text}}]})
    with pytest.raises(Lost):
        read_observation('{"type": ' + DEEP_JSON + ', "data": {}}')
    assert _json_call('{"name": "calculator", "arguments": {"expression": ' + DEEP_JSON + "}}").problem
    for reply in (None, [], {"output": 1, "code": 0}, {"output": "", "code": None}):
        with pytest.raises(ValueError, match="output"):
            read_ended(reply)
    assert excerpt([1, LONE_SURROGATE]) == "[1, '\\ud800']"


@pytest.mark.parametrize("aggregate", ["mean", "sum", "product"])
def test_step_scores_that_overflow_give_no_reward(aggregate):
    fields = {"entry_point": "none", "per": "step", "aggregate": aggregate}
    with closing(PluginTerm(PluginReward.model_validate(fields))) as term:
        with pytest.raises(ValueError, match="finite"):
            term._number([1e308, 1e308, 1e308])
        assert term._number([1.0, 3.0]) in (2, 4, 3)
