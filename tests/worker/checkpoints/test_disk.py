"""Tests of full, read-only and faulty disks during a real training run.

A lack of space and read-only mounts are real, on a tmpfs of the test. An I/O error (EIO) and a full quota
are injected into the calls of the product."""

import errno
import os
import threading

import pytest
from sqlalchemy import select, text

import worker.checkpoints.disk
from backend.config.merge import resolve
from backend.runs import lifecycle
from backend.runs.checkpoints import load_checkpoints
from backend.storage.engine import database_address, open_engine, open_sessions
from backend.storage.migrate import upgrade
from backend.storage.models import Event, Run
from tests.api_client import client_of_service
from tests.disks import fill, mounted_read_only, small_disk
from tests.trained_runs import SMALL_CONFIG, series
from tests.waiting import wait_for
from worker.checkpoints.files import remove_drafts
from worker.train import Assignment, train_run

LAUNCH = {"name": "x", "base": {}, "variants": [{"name": "v"}], "seeds": [0]}


@pytest.fixture
def state(settings, state_dir, monkeypatch):
    """A state directory on a small separate disk."""
    with small_disk(state_dir / "small", megabytes=48) as disk:
        monkeypatch.setenv("STATE_DIR", str(disk))
        yield disk


def attempt(sessions, run_id):
    """Make one attempt at the run, as a trainer process does, and return the run afterwards."""
    with sessions.begin() as session:
        claim = lifecycle.claim_run(session, "worker", "host")
    assert claim.run_id == run_id
    url = database_address(sessions).render_as_string(hide_password=False)
    train_run(Assignment(run_id, claim.attempt, "cpu", 1, url), threading.Event())
    with sessions() as session:
        return session.get_one(Run, run_id)


def resume(sessions, run_id):
    with sessions.begin() as session:
        lifecycle.resume_run(session, run_id)
    return attempt(sessions, run_id)


@pytest.fixture
def run_id(straight, queued):
    return queued(resolve(SMALL_CONFIG))


def paused_reason(sessions, run_id, state, expected_series, mend):
    """Return the reason why the run paused, after it has resumed and ended like an uninterrupted run.

    The failed save must leave nothing behind."""
    run = attempt(sessions, run_id)
    assert run.status == "paused"
    assert list((state / "runs" / run_id).glob(".*")) == []
    with sessions() as session:
        assert session.scalars(select(Event.message).where(Event.kind == "checkpoint")).all() == [run.reason]
    mend()
    assert resume(sessions, run_id).status == "finished"
    assert series(sessions, run_id) == expected_series
    return run.reason


@pytest.mark.nightly
def test_a_run_is_paused_before_a_checkpoint_that_does_not_fit(sessions, run_id, state, straight):
    filler = fill(state, leave=15_000_000)
    reason = paused_reason(sessions, run_id, state, straight, filler.unlink)
    assert reason.startswith("disk: 15 MB free on the disk of ")
    assert f"{state}/runs/{run_id}; a checkpoint needs 11 MB and 8.0 MB stay free" in reason


def test_a_disk_that_fills_during_a_save_pauses_the_run(sessions, run_id, state, straight, monkeypatch):
    monkeypatch.setattr(worker.checkpoints.disk, "RESERVE_BYTES", -10_000_000)
    filler = fill(state, leave=5_000_000)
    reason = paused_reason(sessions, run_id, state, straight, filler.unlink)
    assert reason.startswith(f"disk: the disk of {state}/runs/{run_id} is full: ")
    assert reason.endswith("a checkpoint needs 11 MB")


@pytest.mark.nightly
def test_a_read_only_disk_pauses_the_run(sessions, run_id, state, straight):
    with mounted_read_only(state) as make_writable:
        reason = paused_reason(sessions, run_id, state, straight, make_writable)
    assert reason.startswith(f"disk: the disk of {state}/runs/{run_id} is read-only")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("number", "phrase"), [(errno.EIO, "reports a write error"), (errno.EDQUOT, "is full")]
)
def test_a_disk_that_reports_an_error_pauses_the_run(
    sessions, run_id, state, straight, monkeypatch, number, phrase
):
    def fail(_descriptor):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        reason = paused_reason(sessions, run_id, state, straight, patch.undo)
    assert phrase in reason


@pytest.mark.nightly
def test_a_database_on_a_full_disk_delays_the_run_and_loses_nothing(state, straight, settings):
    url = f"sqlite:///{state}/lab.db"
    upgrade(url)
    engine = open_engine(url)
    full_sessions = open_sessions(engine)
    with full_sessions.begin() as session:
        config = resolve(SMALL_CONFIG).model_dump(mode="json")
        run = Run(name="r", variant="v", seed=0, config=config, config_hash="", steps=4, status="queued")
        session.add(run)
        session.flush()
        run_id = run.id
    filler = fill(state, leave=100_000)
    trainer = threading.Thread(target=attempt, args=(full_sessions, run_id))
    with client_of_service(settings.model_copy(update={"state_dir": state}), url) as client:
        trainer.start()

        def is_told():
            database = client.get("/api/v1/status").json()["database"]
            return database if database["state"] == "full" else None

        assert f"the disk of the database {state}/lab.db is full" in wait_for(is_told, seconds=60)["detail"]
        assert client.get(f"/api/v1/runs/{run_id}").json()["status"] == "running"
        assert client.get("/api/v1/runs").status_code == 200
        response = client.post("/api/v1/experiments", json=LAUNCH)
        assert (response.status_code, response.headers["content-type"]) == (507, "application/problem+json")
        assert "free some space" in response.json()["detail"]
        assert trainer.is_alive()
        filler.unlink()
        trainer.join(120)
        assert not trainer.is_alive()
        assert client.post("/api/v1/experiments", json=LAUNCH).status_code == 201
    with full_sessions() as session:
        assert session.get_one(Run, run_id).status == "finished"
        assert session.scalar(text("PRAGMA integrity_check")) == "ok"
        assert len(load_checkpoints(session, run_id)) == 2
    assert series(full_sessions, run_id) == straight
    engine.dispose()


def test_leftovers_of_an_interrupted_save_are_removed(tmp_path):
    (tmp_path / ".s000004-a1.77.draft" / "trainer").mkdir(parents=True)
    remove_drafts(tmp_path)
    assert list(tmp_path.iterdir()) == []
