"""Tests of runs with tools on the tiny policy: interrupted, asynchronous, and checked before launch."""

from typing import Any

import pytest

from backend.config.merge import resolve
from tests.factories import stored_completions
from tests.trained_runs import series
from tests.worker.training.test_launch_check import run_check  # noqa: F401 - a fixture
from worker.outcome import Outcome

RUN_CONFIG: dict[str, Any] = {
    "steps": 4,
    "environment": {"type": "tool_use", "form": "equation", "max_observation_tokens": 4},
    "sampling": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 40},
    "filters": {"groups": {"type": "zero_variance"}, "refill": {"type": "active"}},
    "evaluation": {"every": 4, "prompts": 4},
    "checkpointing": {"every": 1},
}


@pytest.mark.nightly
def test_an_interrupted_run_with_tools_continues_bit_by_bit(sessions, train_interrupted):
    points = train_interrupted(resolve(RUN_CONFIG), stop_after=2)
    assert points["tools/calls"][1] > 0
    with sessions() as session:
        stored_turns = [completion.turns for completion in stored_completions(session) if completion.turns]
    assert {turn["tool"] for turns in stored_turns for turn in turns} == {"calculator"}


def test_rollouts_with_tools_can_run_ahead(sessions, queued, train):
    sampling = RUN_CONFIG["sampling"] | {"ahead": 1}
    config = resolve(RUN_CONFIG | {"sampling": sampling, "filters": {}, "steps": 2})
    run_id = queued(config)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id)["tools/calls"][2] > 0


def test_a_check_before_launch_samples_several_turns(run_check):  # noqa: F811
    run = run_check(environment=RUN_CONFIG["environment"] | {"max_turns": 1})
    assert (run.status, run.reason) == ("finished", "")
