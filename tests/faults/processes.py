"""Processes under fault: waiting for conditions, signals, and a parent of forked trainers."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.waiting import wait_for

ROOT = Path(__file__).parent.parent.parent


@contextmanager
def warm_parent() -> Iterator[Path]:
    """Yield the socket of a parent of forked trainers (see warm.py)."""
    directory = Path(tempfile.mkdtemp(prefix="gl-"))
    socket = directory / "warm.sock"
    with (directory / "log").open("wb") as log:
        parent = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.warm", str(socket)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            cwd=ROOT,
        )
    with parent:
        wait_for(socket.exists, "the parent of the trainers is ready")
        yield socket
    shutil.rmtree(directory)


@contextmanager
def freeze(*pids: int) -> Iterator[None]:
    """Stop processes for the duration of the context, as on a suspended machine."""
    for pid in pids:
        send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            send(pid, signal.SIGCONT)


def has_pending(pid: int, number: signal.Signals) -> bool:
    """Return True if a signal is pending for a stopped process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("ShdPnd:")[2].split()[0], 16) & 1 << number - 1)


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal, and return True if the process exists."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def is_alive(pid: int) -> bool:
    """Return True if a process runs and is not a zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
