"""Tests of trainers forked from one warm parent, which behave like independent processes."""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from backend.base.settings import Settings
from backend.runs.workers.devices import Slot
from tests.waiting import wait_for
from worker.host.spares import WarmParent
from worker.host.trainer_process import trainer_environment
from worker.outcome import EXIT_ORPHANED

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[3]
SLOT = Slot(0, "cpu", "CPU", 1)


@pytest.fixture
def settings(state_dir, sqlite_url, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Settings(state_dir=state_dir, database_url=sqlite_url)


@contextmanager
def started_parent(settings):
    """Yield a parent that has imported everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("GRPOLAB_TOKEN", "a secret of the worker")
        parent = WarmParent(settings, SLOT)
    parent.keep()
    try:
        wait_for(lambda: parent.is_ready)
        yield parent
    finally:
        parent.close()


@pytest.fixture(scope="module")
def parent():
    """The parent for all tests that do not modify it."""
    with tempfile.TemporaryDirectory() as state, started_parent(Settings(state_dir=Path(state))) as parent:
        yield parent


def has_ended(process):
    return not process.is_running() or process.status() == "zombie"


def environment(settings, **variables):
    return trainer_environment(settings, SLOT, os.environ) | variables


def test_forks_share_memory_and_end_independently(settings, parent):
    stopped_fork, killed_fork, remaining_fork = (parent.take(environment(settings)) for _ in range(3))
    for fork in (stopped_fork, killed_fork, remaining_fork):
        wait_for(fork.ready.is_set)
        assert os.getsid(fork.pid) == fork.pid
        of_its_own = psutil.Process(fork.pid).memory_full_info().uss
        assert of_its_own < 100 * 2**20  # torch alone uses more
        assert fork.wait(0) is None
    stopped_fork.ask_to_stop()
    os.kill(killed_fork.pid, signal.SIGKILL)
    remaining_fork.kill()  # as its supervisor does
    assert stopped_fork.wait(30) == EXIT_ORPHANED  # it had no run yet
    assert killed_fork.wait(30) == remaining_fork.wait(30) == -signal.SIGKILL
    stopped_fork.kill()  # closes its pipes
    killed_fork.kill()
    assert parent.is_ready


def test_a_fork_gets_only_its_environment_and_no_secret_of_the_worker(settings, parent):
    fork = parent.take(environment(settings, LEASE_SECONDS="a while"))
    assert fork.wait(60) == 1
    assert "float_parsing" in fork.last_error_line
    assert b"a secret of the worker" not in Path(f"/proc/{parent._process.pid}/environ").read_bytes()
    fork.kill()


@pytest.mark.nightly
@pytest.mark.parametrize("victim", ["worker", "parent"])
def test_no_process_outlives_a_killed_worker(settings, victim, monkeypatch):
    program = f"""
import os, sys, time
from backend.base.settings import Settings
from backend.runs.workers.devices import Slot
from worker.host.spares import WarmParent
from worker.host.trainer_process import trainer_environment
settings, slot = Settings(), Slot(0, "cpu", "CPU", 1)
parent = WarmParent(settings, slot)
parent.keep()
while not parent.is_ready:
    time.sleep(0.05)
fork = parent.take(trainer_environment(settings, slot, os.environ))
fork.ready.wait(60)
print(parent._process.pid, fork.pid, flush=True)
{"parent.close()" if victim == "parent" else ""}
time.sleep(600)
"""
    monkeypatch.setenv("STATE_DIR", str(settings.state_dir))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as worker:
        parent, fork = (psutil.Process(int(pid)) for pid in worker.stdout.readline().split())
        worker.kill()
    for process in (parent, fork):
        wait_for(partial(has_ended, process), seconds=30)
