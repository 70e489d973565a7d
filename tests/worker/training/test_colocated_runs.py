"""Tests of runs on the tiny policy whose trainer starts a fake vLLM."""

from typing import Any

import pytest
from sqlalchemy import select

from backend.base.errors import EngineFailed
from backend.config.merge import resolve
from backend.config.metrics import find_metric
from backend.storage.models import Event, MetricKey
from tests.trained_runs import series
from tests.worker.rollout import fake_vllm
from worker.outcome import Outcome

RUN_CONFIG: dict[str, Any] = {
    "steps": 2,
    "sampling": {
        "prompts_per_step": 2,
        "group_size": 4,
        "max_new_tokens": 16,
        "engine": {"type": "colocated", "largest_mismatch": 1e6},  # random log-probabilities
    },
    "evaluation": {"every": 0},
    "checkpointing": {"every": 1},
}


@pytest.fixture
def settings(settings, state_dir):
    return settings.model_copy(update={"engine_python": fake_vllm.install(state_dir)})


def test_a_run_starts_its_engine_and_leaves_nothing_of_it(sessions, queued, train, settings):
    config = resolve(RUN_CONFIG)
    assert config.objective.correction.type == "token_tis"
    run_id = queued(config)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id)["sampling/engine_restarts"] == {1: 0, 2: 0}
    with sessions() as session:
        [message] = [event.message for event in session.scalars(select(Event)) if event.kind == "engine"]
        names = list(session.scalars(select(MetricKey.name)))
    assert "time/engine_sleep_seconds" in names
    assert [name for name in names if find_metric(name) is None] == []
    assert message.startswith("vLLM beside the trainer started in ")
    assert "it keeps its memory while the policy learns: only vLLM on a GPU can sleep" in message
    assert list(settings.engine_directory.iterdir()) == []


def test_a_run_whose_engine_does_not_start_fails_with_its_message(queued, train, monkeypatch):
    config = resolve(RUN_CONFIG)
    monkeypatch.setenv(fake_vllm.FAULT_VARIABLE, "dies")
    with pytest.raises(EngineFailed, match="vLLM did not start: ValueError: head_dim 16 is not supported"):
        train(queued(config), config)


def test_a_run_asked_to_end_does_not_wait_for_its_engine(queued, train, monkeypatch):
    config = resolve(RUN_CONFIG)
    monkeypatch.setenv(fake_vllm.FAULT_VARIABLE, "never")
    outcome = train(queued(config), config, prepare=lambda trainer: trainer.stopping.set())
    assert outcome.status == "queued"
