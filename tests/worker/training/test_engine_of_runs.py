"""Tests of runs on the tiny policy that a misbehaving server samples."""

from typing import Any

import pytest
from sqlalchemy import select

from backend.base.errors import EngineFailed
from backend.config.merge import resolve
from backend.config.metrics import find_metric
from backend.storage.models import Event, MetricKey, Run
from tests.trained_runs import series
from tests.worker.rollout.test_server_engine import API_KEY, address, tell_server  # noqa: F401 - fixtures
from worker.outcome import Outcome

SAMPLING = {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 16}
RUN_CONFIG: dict[str, Any] = {
    "steps": 2,
    "sampling": {**SAMPLING, "engine": {"type": "server", "retries": 0}},
    "evaluation": {"every": 0},
    "checkpointing": {"every": 1},
}


@pytest.fixture
def settings(settings, address, tell_server):  # noqa: F811 - fixtures above
    return settings.model_copy(update={"engine_url": address, "engine_api_key": API_KEY})


@pytest.mark.nightly
def test_a_run_learns_from_the_server_with_a_correction_and_names_its_sampler(
    sessions, queued, train, settings
):
    config = resolve(RUN_CONFIG)
    assert config.objective.correction.type == "token_tis"
    run_id = queued(config)
    assert train(run_id, config) == Outcome("finished")
    points = series(sessions, run_id)
    assert max(points["mismatch/k3"].values()) < 1e-6
    assert points["mismatch/masked_frac"] == {1: 0, 2: 0}
    assert points["sampling/engine_retries"] == {1: 0, 2: 0}
    with sessions() as session:
        messages = [event.message for event in session.scalars(select(Event)) if event.kind == "engine"]
        names = session.scalars(select(MetricKey.name))
        assert [name for name in names if find_metric(name) is None] == []
    sentence = "one server of ENGINE_URL with the model served-tiny will sample"
    assert messages == [f"{sentence}; all weights through a directory will be sent"]
    assert list(settings.engine_directory.iterdir()) == []


@pytest.mark.nightly
def test_a_run_whose_server_fails_can_continue_from_its_checkpoint(sessions, queued, train, tell_server):  # noqa: F811
    config = resolve(RUN_CONFIG)
    run_id = queued(config)

    def break_after_a_step(trainer):
        record = trainer.recorder.record_step

        def record_and_break(row):
            record(row)
            tell_server("500")

        trainer.recorder.record_step = record_and_break

    with pytest.raises(EngineFailed, match=r"status 500 \(CUDA error\)"):
        train(run_id, config, prepare=break_after_a_step)
    tell_server("")
    with sessions.begin() as session:
        session.get_one(Run, run_id).status = "queued"
    assert train(run_id, config) == Outcome("finished")
    assert sorted(series(sessions, run_id)["mismatch/k3"]) == [1, 2]
