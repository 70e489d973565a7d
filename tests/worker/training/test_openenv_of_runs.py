"""Tests of runs with an OpenEnv server on the tiny policy: interrupted, asynchronous and failing."""

from typing import Any

import pytest

from backend.base.errors import EnvironmentFailed
from backend.config.merge import resolve
from tests.factories import stored_completions
from tests.trained_runs import series
from tests.worker.rollout.test_openenv import address, with_servers  # noqa: F401 - a fixture
from worker.outcome import Outcome

RUN_CONFIG: dict[str, Any] = {
    "steps": 3,
    "environment": {"type": "openenv", "server": "two", "max_turns": 3, "sessions": 4},
    "problems": [{"name": "episodes", "instruction": "Guess."}],
    "rewards": [{"name": "environment"}],
    "sampling": {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 60},
    "evaluation": {"every": 3, "prompts": 2},
    "checkpointing": {"every": 1},
}


@pytest.fixture
def settings(settings, address):  # noqa: F811
    return with_servers(settings, address)


@pytest.mark.nightly
def test_an_interrupted_run_in_an_environment_continues_bit_by_bit(sessions, train_interrupted):
    points = train_interrupted(resolve(RUN_CONFIG), stop_after=1)
    assert points["environment/lost_frac"] == {1: 0.0, 2: 0.0, 3: 0.0}
    assert points["tools/turns"][1] > 1
    assert set(points["eval/accuracy"]) == {0, 3}
    with sessions() as session:
        stored_turns = [completion.turns for completion in stored_completions(session) if completion.turns]
    assert {turn["tool"] for turns in stored_turns for turn in turns} == {"two"}
    assert {turn["outcome"] for turns in stored_turns for turn in turns} <= {"ok", "done"}


def test_episodes_can_run_ahead(sessions, queued, train):
    config = resolve(RUN_CONFIG | {"sampling": RUN_CONFIG["sampling"] | {"ahead": 1}, "steps": 2})
    run_id = queued(config)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id)["environment/lost_frac"][2] == 0


def test_a_run_whose_environment_fails_every_episode_fails_with_a_reason(queued, train):
    config = resolve(RUN_CONFIG | {"environment": RUN_CONFIG["environment"] | {"server": "no_json"}})
    with pytest.raises(EnvironmentFailed, match="no_json of OPENENV_URLS failed: no episode of a step"):
        train(queued(config), config)
