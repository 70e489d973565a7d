"""Tests of asynchronous runs on the tiny policy."""

from typing import Any

from sqlalchemy import select

from backend.config.merge import resolve
from backend.storage.models import RolloutGroup
from tests.trained_runs import series
from worker.outcome import Outcome

RUN_CONFIG: dict[str, Any] = {
    "steps": 5,
    "sampling": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 16, "ahead": 2},
    "evaluation": {"every": 5, "prompts": 4},
    "checkpointing": {"every": 1},
    "recording": {"rollouts": "all"},
}


def prompts(sessions, run_id):
    """Return the prompts of each training step, in order."""
    query = (
        select(RolloutGroup)
        .where(RolloutGroup.run_id == run_id)
        .order_by(RolloutGroup.step, RolloutGroup.prompt_index)
    )
    prompts_by_step: dict[int, list[str]] = {}
    with sessions() as session:
        for group in session.scalars(query):
            if group.kind == "train":
                prompts_by_step.setdefault(group.step, []).append(group.prompt)
    return prompts_by_step


def test_an_interrupted_run_trains_on_every_prompt_once_in_order(sessions, queued, train):
    config = resolve(RUN_CONFIG)
    assert config.objective.correction.type == "token_tis"
    straight_run = queued(config)
    assert train(straight_run, config) == Outcome("finished")
    interrupted_run = queued(config)
    assert train(interrupted_run, config, stop_after=2).status == "queued"
    assert train(interrupted_run, config) == Outcome("finished")
    assert sorted(prompts(sessions, straight_run)) == [1, 2, 3, 4, 5]
    assert prompts(sessions, interrupted_run) == prompts(sessions, straight_run)
    points = series(sessions, interrupted_run)
    assert all(0 <= points["sampling/staleness"][step] <= 2 for step in range(1, 6))
    assert max(points["sampling/staleness_max"].values()) <= 2
    assert sorted(points["mismatch/k3"]) == [1, 2, 3, 4, 5]
