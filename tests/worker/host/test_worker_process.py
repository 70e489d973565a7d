"""Tests of the real Celery worker with toy trainers: claims, doorbells, failures and shutdowns."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import func, select

from backend.base.settings import Settings
from backend.runs.queue.doorbell import ring
from backend.storage.models import Run, Worker
from tests.waiting import wait_for
from tests.worker.host.conftest import start_broker

ROOT = Path(__file__).parents[3]


@pytest.fixture
def settings(state_dir, sqlite_url):
    return Settings(state_dir=state_dir, database_url=sqlite_url, lease_seconds=4, poll_seconds=600)


@pytest.fixture
def start_worker(settings, sessions):
    """A function that starts worker processes and waits until they are registered."""
    workers = []

    def start(toy="finish", slots=1, **changes):
        changed_settings = settings.model_copy(update=changes)
        environment = {
            **os.environ,
            "TOY": toy,
            "PYTHONPATH": str(ROOT),
            "STATE_DIR": str(changed_settings.state),
            "DATABASE_URL": changed_settings.database_url,
            "LEASE_SECONDS": str(changed_settings.lease_seconds),
            "POLL_SECONDS": str(changed_settings.poll_seconds),
            "WORKER_SLOTS": str(slots),
            "WORKER_RUNS": str(changed_settings.worker_runs),
            "WORKER_IDLE_SECONDS": str(changed_settings.worker_idle_seconds),
            "WORKER_UNTIL": str(changed_settings.worker_until),
        }
        argv = [sys.executable, "-m", "celery", "--app", "tests.worker.host.toy_app", "--quiet", "worker"]
        argv += ["--pool", "threads", "--concurrency", str(slots), "--queues", "gpu"]
        argv += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        with (changed_settings.state / f"worker{len(workers)}.log").open("wb") as log:
            workers.append(subprocess.Popen(argv, env=environment, cwd=ROOT, stdout=log, stderr=log))
        worker = workers[-1]
        wait_for(
            lambda: count(sessions, Worker, Worker.pid == worker.pid) == slots or worker.poll() is not None
        )
        return worker

    yield start
    for process in workers:
        process.kill()
        process.wait()


def count(sessions, table, *where):
    with sessions() as session:
        return session.scalar(select(func.count()).select_from(table).where(*where))


def queue_runs(sessions, number=1):
    with sessions.begin() as session:
        runs = [
            Run(name="toy", variant="", seed=n, config={}, config_hash="", steps=3, status="queued")
            for n in range(number)
        ]
        session.add_all(runs)
        session.flush()
        return [run.id for run in runs]


def have_status(sessions, status, run_ids):
    return lambda: count(sessions, Run, Run.id.in_(run_ids), Run.status == status) == len(run_ids)


def ring_until(settings, condition):
    """Rings as the reconciler does, until it has happened."""

    def rung():
        if condition():
            return True
        ring(settings)
        time.sleep(0.2)
        return condition()

    wait_for(rung)


def test_the_doorbell_starts_a_queued_run_immediately(settings, sessions, broker, start_worker):
    start_worker()
    wait_for(lambda: count(sessions, Worker, Worker.status == "idle") == 1)
    run_ids = queue_runs(sessions)
    ring_until(settings, have_status(sessions, "finished", run_ids))


@pytest.mark.nightly
def test_a_pilot_releases_its_run_at_its_deadline(sessions, start_worker):
    run_ids = queue_runs(sessions)
    has_begun, seconds = have_status(sessions, "running", run_ids), 10
    while not has_begun():
        pilot = start_worker("endless", poll_seconds=0.3, worker_until=time.time() + seconds)
        wait_for(lambda: has_begun() or pilot.poll() is not None)  # noqa: B023 - called here and now
        seconds *= 2  # in case a busy machine took longer to start
    assert pilot.wait() == 0
    assert have_status(sessions, "queued", run_ids)()
    with sessions() as session:
        assert session.get_one(Run, run_ids[0]).own_failures == 0


def test_a_broker_failure_disturbs_no_run_and_the_doorbell_works_afterwards(
    settings, sessions, broker, start_worker
):
    worker = start_worker("long")
    run_ids = queue_runs(sessions)
    ring_until(settings, have_status(sessions, "running", run_ids))
    broker.kill()
    broker.wait()
    second_broker = start_broker(settings)
    try:
        assert have_status(sessions, "running", run_ids)()
        with sessions.begin() as session:
            session.get_one(Run, run_ids[0]).requested_action = "stop"
        wait_for(have_status(sessions, "stopped", run_ids))
        later_runs = queue_runs(sessions)
        ring_until(settings, have_status(sessions, "running", later_runs))
        assert worker.poll() is None
    finally:
        second_broker.kill()
        second_broker.wait()


def test_the_worker_does_not_import_torch(settings):
    program = "import sys, worker.host.app; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "STATE_DIR": str(settings.state), "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == 0
