"""Runs of the tiny policy that tests train in their own process, with a database and checkpoints.

A plugin of tests/conftest.py with fixtures for every test:

sessions           Sessions on a private SQLite database
queued             adds a run to the queue
train              claims a run and trains it
train_interrupted  trains a run with and without an interruption, which must be equal
straight           the series of an uninterrupted run of SMALL_CONFIG
"""

import math
import threading
from typing import Any

import pytest

from backend.config.merge import resolve
from backend.config.metrics import MACHINE_PREFIXES
from backend.runs import lifecycle
from backend.storage.artifacts.store import artifact_store
from backend.storage.engine import open_engine, open_sessions
from backend.storage.models import Run
from tests.stored_points import stored_points
from worker.checkpoints.fork import find_origin
from worker.checkpoints.store import Checkpoints
from worker.outcome import Outcome
from worker.recording.recorder import Recorder
from worker.training.trainer import Trainer

SMALL_CONFIG: dict[str, Any] = {
    "steps": 4,
    "sampling": {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 40},
    "evaluation": {"every": 2, "prompts": 8},
    "checkpointing": {"every": 2, "keep": 2},
}
UNINTERRUPTED_SERIES: dict[str, dict[int, float]] = {}
"""The series of the first uninterrupted run of SMALL_CONFIG."""


@pytest.fixture
def sessions(sqlite_url):
    engine = open_engine(sqlite_url)
    yield open_sessions(engine)
    engine.dispose()


@pytest.fixture
def queued(sessions):
    """Return a function that adds a run to the queue."""

    def queue(config, *, parent=None, step=None):
        with sessions.begin() as session:
            run = Run(
                name="r",
                variant="v",
                seed=config.seed,
                config=config.model_dump(mode="json"),
                config_hash="",
                steps=config.steps,
                status="queued",
                parent_run=parent,
                fork_step=step,
            )
            session.add(run)
            session.flush()
            return run.id

    return queue


@pytest.fixture
def train(sessions, settings):
    """Return a function that claims and trains a run. `stop_after` requests a shutdown in that step."""

    def train(run_id, config, *, stop_after=None, prepare=None):
        with sessions.begin() as session:
            claim = lifecycle.claim_run(session, "worker", "host")
        assert claim.run_id == run_id
        stopping = threading.Event()
        recorder = Recorder(sessions, run_id, claim.attempt, config=config)
        with recorder:
            root = settings.artifact_dir(run_id)
            origin = recorder.read(lambda session: find_origin(session, run_id, settings))
            owner = {"run_id": run_id, "attempt": claim.attempt, "config": config, "origin": origin}
            owner["artifacts"] = artifact_store(settings)
            checkpoints = Checkpoints(root, recorder, **owner)
            trainer = Trainer(
                config,
                recorder,
                settings=settings,
                checkpoints=checkpoints,
                device="cpu",
                stopping=stopping,
            )
            if stop_after is not None:
                _stop_after(trainer, stopping, stop_after)
            if prepare is not None:
                prepare(trainer)
            outcome = trainer.train()
            recorder.flush()
        with sessions.begin() as session:
            if outcome.status == "queued":
                lifecycle.release_run(session, run_id, claim.attempt, outcome.reason)
            else:
                lifecycle.finish_run(session, run_id, claim.attempt, outcome.status, outcome.reason)
        return outcome

    return train


def _stop_after(trainer, stopping, step):
    record = trainer.recorder.record_step

    def record_and_stop(row):
        record(row)
        if row.step == step:
            stopping.set()

    trainer.recorder.record_step = record_and_stop


def series(sessions, run_id):
    """Return {metric: {step: value}} of the newest attempt, without metrics of the machine's speed."""
    points_by_name = {}
    with sessions() as session:
        for point in stored_points(session, run_id):
            if not point.name.startswith(MACHINE_PREFIXES):
                value = point.value if math.isfinite(point.value) else None
                points_by_name.setdefault(point.name, {})[point.step] = value
    return points_by_name


@pytest.fixture
def train_interrupted(sessions, queued, train):
    """Return a function that trains a run with and without an interruption and returns its series.

    Both series must be equal. `prepare` is called with the trainers before and after the interruption."""

    def train_interrupted(config, *, stop_after, prepare=None):
        straight_run = queued(config)
        assert train(straight_run, config) == Outcome("finished")
        interrupted_run = queued(config)
        assert train(interrupted_run, config, stop_after=stop_after, prepare=prepare).status == "queued"
        assert train(interrupted_run, config, prepare=prepare) == Outcome("finished")
        interrupted_series = series(sessions, interrupted_run)
        assert interrupted_series == series(sessions, straight_run)
        return interrupted_series

    return train_interrupted


@pytest.fixture
def straight(sessions, queued, train):
    """Return the series of an uninterrupted run of SMALL_CONFIG, which is trained once for all tests."""
    if not UNINTERRUPTED_SERIES:
        config = resolve(SMALL_CONFIG)
        run_id = queued(config)
        train(run_id, config)
        UNINTERRUPTED_SERIES.update(series(sessions, run_id))
    return UNINTERRUPTED_SERIES
