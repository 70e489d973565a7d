"""Start, monitor and end the process of the trainer's vLLM server.

The server always ends with the trainer. If the machine permits namespaces, the server has
separate process and network namespaces: all its processes end with its first one, and its ports cannot be
reached. Otherwise the kernel sends SIGTERM when the trainer dies, and the trainer's supervisor ends the
remaining processes of its session.
"""

import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, cast

import httpx2
import psutil

from backend.base.errors import EngineFailed
from backend.base.redaction import redact
from backend.base.sandbox import bubblewrap
from worker.out_of_memory import MEMORY_MESSAGES

logger = logging.getLogger("worker.vllm")

ASK_SECONDS = 0.1
"""Seconds between two checks of whether the server is ready."""

HEALTH_SECONDS = 5.0

END_SECONDS = 10.0
"""Seconds that the server's processes get to end after SIGTERM."""

MAX_KEPT_LINES = 400
"""Number of last output lines kept. It is large because an engine reports a failure long before its last
line.
"""

MAX_REASON_CHARACTERS = 500
"""Maximum number of characters of the output in a run's failure reason."""

FAILURE_PATTERN = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception): \S.*)")

VLLM_MEMORY_MESSAGES = (
    *MEMORY_MESSAGES,
    "less than desired GPU memory utilization",
    "No available memory for the cache blocks",
)

GUARD = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 15)\n"  # PR_SET_PDEATHSIG, SIGTERM
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])\n"
)
"""Program that ties its child to the life of the process that started it."""


SOCKET = "socket"


class Command(NamedTuple):
    """The server to start: arguments, environment and directory."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    """Private working directory of the server, with its sockets."""

    @property
    def socket(self) -> Path:
        """The path of the unix socket on which the server listens."""
        return self.directory / SOCKET


class VllmProcess:
    """One server process.

    The thread that starts it must outlive it, because Linux ties the process to the thread.
    """

    def __init__(self, command: Command) -> None:
        self._command = command
        self._lines: deque[str] = deque(maxlen=MAX_KEPT_LINES)
        self.is_apart = not bubblewrap.isolation_unavailable_reason()
        guard_command = (
            [sys.executable, "-I", "-c", GUARD, str(os.getpid())] if sys.platform == "linux" else []
        )
        argv = list(command.argv)
        command.socket.unlink(missing_ok=True)
        try:
            self._process = subprocess.Popen(
                bubblewrap.isolated_command(argv) if self.is_apart else [*guard_command, *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(command.environment),
                cwd=command.directory,
                umask=0o077,
            )  # no separate session: it ends with the trainer
        except OSError as error:
            raise EngineFailed(f"vLLM cannot be started: {type(error).__name__}") from None
        self._reader = threading.Thread(target=self._read, name="output of vLLM", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id of the first process."""
        return self._process.pid

    def is_running(self) -> bool:
        """Return whether the process is running."""
        return self._process.poll() is None

    def ends_within(self, seconds: float) -> bool:
        """Wait at most `seconds`, and return whether the process has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return not self.is_running()

    def answers(self, *, seconds: float, is_unwanted: Callable[[], bool]) -> bool:
        """Wait until the server answers, and return False if the answer is no longer wanted.

        If the server fails to start, end the process and raise EngineFailed with the reason.
        """
        deadline = time.monotonic() + seconds
        transport = httpx2.HTTPTransport(uds=str(self._command.socket))
        try:
            with httpx2.Client(transport=transport, timeout=HEALTH_SECONDS) as client:
                while not self._is_well(client):
                    self._check_start(deadline, seconds)
                    if is_unwanted():
                        return False
                    time.sleep(ASK_SECONDS)
        except BaseException:
            self.kill()
            raise
        return True

    def _check_start(self, deadline: float, seconds: float) -> None:
        if not self.is_running():
            raise EngineFailed(f"vLLM did not start: {self.failure_reason()}")
        if time.monotonic() > deadline:
            message = f"vLLM did not start within {seconds:g} s (sampling.engine.start_seconds)"
            raise EngineFailed(f"{message}: {self.failure_reason()}")

    def _is_well(self, client: httpx2.Client) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as unix_socket:
            unix_socket.connect(
                str(self._command.socket)
            )  # httpx2 would leave open a socket that cannot connect
            with (
                contextlib.suppress(httpx2.HTTPError),
                client.stream("GET", "http://vllm/health") as response,
            ):
                return response.status_code == httpx2.codes.OK  # the body is not needed
        return False

    def failure_reason(self) -> str:
        """Return the reason of the failure: the first and the last error printed, or the last line."""
        if not self.is_running():
            self._reader.join(END_SECONDS)  # the output is read to its end
        lines = list(self._lines)
        errors = [match[1] for line in lines if (match := FAILURE_PATTERN.search(line))]
        reported_errors = list(dict.fromkeys([*errors[:1], *errors[-1:]])) or lines[-1:]
        reason = " ... ".join(reported_errors)[:MAX_REASON_CHARACTERS] or "it said nothing"
        is_memory = any(saying in line for saying in VLLM_MEMORY_MESSAGES for line in lines)
        hint = "; another sampling.engine.memory_share may fit" if is_memory else ""
        code = self._process.poll()
        exit_note = "" if code is None else f" ({_exit_text(code)})"
        return f"{reason}{exit_note}{hint}"

    def kill(self) -> None:
        """End the process and all processes that it has started."""
        children: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self.pid).children(recursive=True)
        if not self.is_apart and self.is_running():
            self._process.terminate()  # it ends its engine's process
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        self._process.kill()
        self._process.wait()
        for process in children:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._reader.join(END_SECONDS)

    def _read(self) -> None:
        with cast("IO[bytes]", self._process.stdout) as output:
            for line in output:
                text = redact(line.decode(errors="backslashreplace").rstrip())
                if text:
                    self._lines.append(text)
                    logger.info("%s", text)


def _exit_text(code: int) -> str:
    signal_number = -code if code < 0 else code - 128
    try:
        return f"ended by {signal.Signals(signal_number).name}"
    except ValueError:
        return f"exit code {code}"
