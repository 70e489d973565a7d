"""Test that a stop rule ends a run at the same step although trainers die around the last checkpoint."""

import random
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import func, select

from backend.base.settings import Settings
from backend.runs import lifecycle
from backend.runs.workers.devices import Slot
from backend.storage.engine import open_engine, open_sessions
from backend.storage.models import Attempt, Checkpoint, Run
from tests.factories import make_run
from tests.faults.processes import send
from tests.waiting import wait_for
from tests.worker.training.test_trainer import HOPELESS_CONFIG
from worker.host.spares import Spare
from worker.host.supervisor import Supervisor
from worker.training.stop_rules import MAX_EMPTY_STEPS

pytestmark = pytest.mark.nightly

STUB_PATH = Path(__file__).parent / "stub.py"
STEP_SECONDS = 0.03
"""Approximate duration of a step of this run."""


@pytest.fixture
def supervision(state_dir, sqlite_url, warm):
    settings = Settings(state_dir=state_dir, database_url=sqlite_url, grpolab_token="secret")
    engine = open_engine(sqlite_url)
    slot = Slot(0, "cpu", "CPU", 1)
    spare = Spare(settings, slot, (sys.executable, "-I", "-S", str(STUB_PATH), str(warm)))
    supervisor = Supervisor(settings, open_sessions(engine), slot, threading.Event(), spare=spare)
    yield supervisor, open_sessions(engine), warm.with_suffix(".pids")
    supervisor.close()
    engine.dispose()


def train_in_thread(supervisor, sessions):
    """Let the supervisor train the queued run, and return its thread and the attempt."""
    with sessions.begin() as session:
        claim = lifecycle.claim_run(session, "worker", "host")
    thread = threading.Thread(target=supervisor.supervise, args=(claim,))
    thread.start()
    return thread, claim


def wait_for_process(sessions, claim, pids):
    """Return the process id of the attempt's trainer, which the stub's parent has forked."""

    def pid():
        with sessions() as session:
            stub = session.scalar(
                select(Attempt.pid).where(Attempt.run_id == claim.run_id, Attempt.number == claim.attempt)
            )
        return stub and (pids / str(stub)).exists() and int((pids / str(stub)).read_text() or 0)

    return wait_for(pid)


def has_checkpoint(sessions, run_id, step):
    newest_query = select(func.max(Checkpoint.step)).where(Checkpoint.run_id == run_id)
    with sessions() as session:
        return (session.scalar(newest_query) or 0) >= step


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("number", "times"), [(signal.SIGKILL, 50), (signal.SIGTERM, 20)])
def test_a_run_ends_at_the_step_of_its_stop_rule_wherever_its_trainer_dies(supervision, number, times):
    supervisor, sessions, pids = supervision
    rng = random.Random(1)
    interrupted_count = 0
    for seed in range(times):
        with sessions.begin() as session:
            run_id = make_run(session, config=HOPELESS_CONFIG, seed=seed).id
        thread, claim = train_in_thread(supervisor, sessions)
        pid = wait_for_process(sessions, claim, pids)
        saved_step, steps = (MAX_EMPTY_STEPS, 2) if seed % 2 else (MAX_EMPTY_STEPS - 5, 7)
        wait_for(lambda: has_checkpoint(sessions, run_id, saved_step))  # noqa: B023 - called at once
        time.sleep(rng.uniform(0, steps * STEP_SECONDS))
        send(pid, number)
        thread.join()
        while (run := _read(sessions, run_id)).status == "queued":
            with sessions.begin() as session:
                session.get_one(Run, run_id).run_after = 0.0
            thread, _ = train_in_thread(supervisor, sessions)
            thread.join()
        interrupted_count += run.attempt > 1
        assert (run.status, run.reason, run.last_step) == ("stopped", "no_signal", MAX_EMPTY_STEPS), seed
    print(f"{number.name}: {interrupted_count} of {times} runs needed another attempt", file=sys.stderr)
    assert interrupted_count


def _read(sessions, run_id):
    with sessions() as session:
        return session.get_one(Run, run_id)
