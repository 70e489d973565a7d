"""Tests of the GPU lock, which keeps two workers of one machine from sharing a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.base.settings import Settings
from backend.runs.workers.devices import Slot
from worker.host import gpu_lock, tasks

ROOT = Path(__file__).parents[3]

HOLD_SCRIPT = """
import sys
from pathlib import Path
from worker.host import gpu_lock
gpu_lock.DIRECTORY = Path(sys.argv[1])
print(gpu_lock.lock_gpu("GPU-a"), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def lock_directory(tmp_path, monkeypatch):
    """A directory in place of /tmp, on a machine with two GPUs and a CPU slot."""
    monkeypatch.setattr(gpu_lock, "DIRECTORY", tmp_path)
    slots = [Slot(0, "cuda:0", "A", 1, "GPU-a"), Slot(1, "cuda:0", "B", 1, "GPU-b"), Slot(2, "cpu", "CPU", 1)]
    monkeypatch.setattr(tasks, "find_slots", lambda _: slots)
    yield tmp_path
    while gpu_lock._held:
        os.close(gpu_lock._held.pop())


@pytest.fixture
def holder(lock_directory):
    """Another worker on this machine, which holds the first GPU."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_SCRIPT, str(lock_directory)], cwd=ROOT, stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdout.readline() == "True\n"
        yield process
        process.kill()


def list_free_slots(name):
    return [slot.number for slot in tasks.free_slots(Settings(state_dir=Path(name)))]


def test_a_second_state_directory_gets_the_free_gpu(lock_directory):
    assert list_free_slots("one") == [0, 1, 2]
    assert list_free_slots("two") == [2]


def test_the_gpu_of_a_killed_worker_is_free_immediately(holder):
    assert list_free_slots("two") == [1, 2]
    holder.kill()
    holder.wait()
    assert list_free_slots("three") == [0, 2]


def test_a_lock_works_for_every_user_and_follows_no_links(lock_directory, caplog):
    previous_umask = os.umask(0o077)
    try:
        list_free_slots("one")
    finally:
        os.umask(previous_umask)
    assert {path.stat().st_mode & 0o777 for path in lock_directory.iterdir()} == {0o444}
    victim = lock_directory / "victim"
    victim.write_text("untouched")
    (lock_directory / "grpolab-gpu-GPU-c.lock").symlink_to(victim)
    assert not gpu_lock.lock_gpu("GPU-c")
    os.mkfifo(lock_directory / "grpolab-gpu-GPU-d.lock")
    assert not gpu_lock.lock_gpu("GPU-d")
    assert "GPU-d cannot be locked, so it is left alone" in caplog.text
    assert victim.read_text() == "untouched"
