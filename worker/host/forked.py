"""A trainer process that the warm parent has forked, with the interface of `subprocess.Popen`."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from typing import IO

FORK_SECONDS = 10.0
"""Seconds that the parent gets to fork, even on a machine that swaps."""

UNKNOWN = -signal.SIGKILL
"""Exit code of a trainer whose parent died before it, the same as if both had been killed."""


class ForkedProcess:
    """A forked process in a separate session, from its fork to its end."""

    def __init__(self, parent: socket.socket, environment: Mapping[str, str]) -> None:
        """Request a fork from the parent. Raise OSError if it does not fork."""
        self.returncode: int | None = None
        self._ended = threading.Event()
        self._lock = threading.Lock()
        with contextlib.ExitStack() as exit_stack:
            stdin, self.stdin = _pipe(exit_stack, writes=True)
            stdout, self.stdout = _pipe(exit_stack)
            stderr, self.stderr = _pipe(exit_stack)
            status, self._status = _pipe(exit_stack)
            request = json.dumps({"environment": dict(environment)}).encode()
            child_ends = [stdin, stdout, stderr, status]
            try:
                socket.send_fds(parent, [request], child_ends)
            finally:
                for fd in child_ends:
                    os.close(fd)
            self.pid = self._read_pid()
            exit_stack.pop_all()
        self._handle = -1
        with contextlib.suppress(ProcessLookupError):  # the process has ended already
            self._handle = os.pidfd_open(self.pid)
        threading.Thread(target=self._await_end, name=f"end of {self.pid}", daemon=True).start()

    def poll(self) -> int | None:
        """Return the exit code like `Popen.poll`, or None while the process runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code. Raise subprocess.TimeoutExpired."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(["fork", str(self.pid)], timeout or 0.0)
        return UNKNOWN if self.returncode is None else self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if the process still runs."""
        with self._lock:  # the handle is open while the process runs
            if self.returncode is None and self._handle >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._handle, number)

    def _read_pid(self) -> int:
        readable, _, _ = select.select([self._status], [], [], FORK_SECONDS)
        line = self._status.readline() if readable else b""
        if not line:
            raise OSError("the parent of trainers does not answer" if not readable else "it did not fork")
        return int(line)

    def _await_end(self) -> None:
        with self._status:
            line = self._status.readline()
        if not line and self._handle >= 0:  # the parent is gone
            select.select([self._handle], [], [])
        with self._lock:
            self.returncode = int(line) if line else UNKNOWN
            if self._handle >= 0:
                os.close(self._handle)
        self._ended.set()


def _pipe(exit_stack: contextlib.ExitStack, *, writes: bool = False) -> tuple[int, IO[bytes]]:
    """Return the fork's end and our end of a pipe. Our end is closed with `exit_stack`."""
    read_fd, write_fd = os.pipe()
    child_end, parent_end = (read_fd, write_fd) if writes else (write_fd, read_fd)
    return child_end, exit_stack.enter_context(os.fdopen(parent_end, "wb" if writes else "rb"))
