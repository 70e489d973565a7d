"""The watch of the quick tests sees every way in which Python starts a process."""

import multiprocessing
import multiprocessing.util
import os
import subprocess

import pytest

from tests.quick import StartedProcesses

pytestmark = pytest.mark.processes


def nothing() -> None:
    pass


def popen() -> None:
    subprocess.run(["true"], check=True)


def fork() -> None:
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def posix_spawn() -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def shell() -> None:
    os.system("true")  # noqa: S605 - the call under test


def spawn() -> None:
    process = multiprocessing.get_context("spawn").Process(target=nothing)
    process.start()
    process.join()


@pytest.fixture
def started(monkeypatch):
    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", multiprocessing.util.spawnv_passfds)
    return StartedProcesses()


@pytest.mark.parametrize("start", [popen, fork, posix_spawn, shell, spawn])
def test_a_started_process_is_noted(started, start):
    assert started == []
    start()
    assert len(started) >= 1
