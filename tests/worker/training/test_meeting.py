"""Tests of the rendezvous of a run's ranks: leftovers of killed ranks, and a stop that reaches all ranks."""

import os
import signal
import subprocess
import sys
import tempfile

import pytest
from torch._C._distributed_c10d import FileStore

from worker.policy.ranks import Ranks
from worker.training.meeting import PREFIX, meeting_directory, remove_abandoned
from worker.training.rank_sampler import shared_cancellation

HOLD_SCRIPT = (
    "from worker.training.meeting import *\nwith meeting_directory() as d: print(d, flush=True); input()"
)


@pytest.fixture
def temporary_directory(tmp_path, monkeypatch):
    """A separate directory for temporary files of the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_only_leftovers_of_a_killed_process_are_removed_at_the_next_start(temporary_directory):
    other_directory = temporary_directory / f"{PREFIX}other"
    other_directory.mkdir()  # another process may be about to lock it
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    leftover_directory = temporary_directory / os.fsdecode(holder.stdout.readline().strip())
    remove_abandoned()
    assert leftover_directory.is_dir()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()
    assert leftover_directory.is_dir()
    with meeting_directory() as directory:
        assert sorted(temporary_directory.iterdir()) == sorted([other_directory, directory])
    assert list(temporary_directory.iterdir()) == [other_directory]


def test_a_stop_of_rank_0_ends_the_sampling_of_all_ranks_and_no_other_call(tmp_path):
    stores = [FileStore(str(tmp_path / "meeting"), 2) for _ in range(2)]
    wishes = [False]
    first = shared_cancellation(stores[0], Ranks(0, 2), 7, lambda: wishes[-1])
    second = shared_cancellation(stores[1], Ranks(1, 2), 7, lambda: False)
    assert (first(), second()) == (False, False)
    wishes.append(True)
    assert (first(), second()) == (True, True)
    assert not shared_cancellation(stores[1], Ranks(1, 2), 8, lambda: False)()
