"""A child process that checks answers: killable, limited in memory, and given nothing but text.

Model text is hostile: a completion such as 9^(9^(9^9)) hangs a computer algebra system inside one C call,
which no thread or signal handler can interrupt. So such work is done in a process that is killed at its time
limit and started again. Both sides speak JSON, one object per line: nothing the child says can run code here.
"""

import json
import logging
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
STARTUP_SECONDS = 120.0
MAX_REPLY_BYTES = 16_000_000
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV")

logger = logging.getLogger(__name__)


class ChildError(Exception):
    """The child could not answer."""


class ChildTimeout(ChildError):
    """The child did not answer within its limit and was killed."""


class ChildDied(ChildError):
    """The child ended while it worked, for instance at its memory limit."""


class ChildRefused(ChildError):
    """The child answered with an error of its own."""


class ChildUnusable(Exception):
    """The child cannot even start or import what it needs: an error of the installation, not of an answer."""


class Child:
    """One checking process, started when it is first needed and again after it was killed.

    `trusted` is for a user's own plugins: they see the whole environment and have no memory limit.
    """

    def __init__(self, *, trusted: bool = False) -> None:
        self._trusted = trusted
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._prepared: set[str] = set()

    def ask(self, request: dict[str, Any], *, seconds: float) -> Any:
        """The child's answer to a request.

        Raises ChildTimeout after `seconds`, ChildDied, ChildRefused with the child's own words, or
        ChildUnusable when it could not be started.
        """
        self._prepare({"for": request["op"], "entry_point": request.get("entry_point", "")})
        return self._send(request, seconds=seconds)

    def close(self) -> None:
        """End the process; a later `ask` starts a new one."""
        process, self._process, self._unread = self._process, None, b""
        self._prepared.clear()
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                _close_quietly(pipe)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self, needs: dict[str, str]) -> None:
        """Start and import: this takes longer than answers and has a time limit of its own."""
        if (key := "/".join(needs.values())) in self._prepared:
            return
        try:
            if self._process is None:
                self._start()
            self._send({"op": "prepare"} | needs, seconds=STARTUP_SECONDS)
        except ChildError as error:
            raise ChildUnusable(str(error)) from error
        self._prepared.add(key)

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "worker.rewards.child_main",
                *(["--trusted"] * self._trusted),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(trusted=self._trusted),
            start_new_session=True,  # Ctrl-C is for the trainer, which ends this process itself
            bufsize=0,
        )
        self._exchange(b"", seconds=STARTUP_SECONDS)

    def _send(self, request: dict[str, Any], *, seconds: float) -> Any:
        reply = self._exchange(json.dumps(request | {"seconds": seconds}).encode() + b"\n", seconds=seconds)
        if "error" in reply:
            raise ChildRefused(str(reply["error"]))
        return reply.get("value")

    def _exchange(self, line: bytes, *, seconds: float) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdin is not None  # noqa: PT018, S101 - told to the type checker
        try:
            process.stdin.write(line)
            reply = json.loads(self._read_line(seconds))
        except ChildError:
            self.close()
            raise
        except (OSError, ValueError) as error:
            self.close()
            raise ChildDied(f"the checking process broke off: {error}") from error
        if not isinstance(reply, dict):
            self.close()
            raise ChildDied("the checking process spoke nonsense")
        return reply

    def _read_line(self, seconds: float) -> bytes:
        process = self._process
        assert process is not None and process.stdout is not None  # noqa: PT018, S101 - told to the type checker
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise ChildTimeout(f"no answer within {seconds:g} seconds")
                self._take(os.read(process.stdout.fileno(), 65536), process)
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _take(self, block: bytes, process: "subprocess.Popen[bytes]") -> None:
        if not block:
            raise ChildDied(f"the checking process ended with code {process.wait()}")
        self._unread += block
        if len(self._unread) > MAX_REPLY_BYTES:
            raise ChildDied("the checking process answered without end")


def _environment(*, trusted: bool) -> dict[str, str]:
    """Little for hostile text, everything for a user's own plugins; the project importable in both."""
    passed_on = os.environ if trusted else {key: os.environ[key] for key in PASSED_ON if key in os.environ}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    # a fixed hash seed makes tasks that iterate over sets give the same question in every process
    fixed = {"PYTHONPATH": path, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    return {**passed_on, **fixed}


def _close_quietly(pipe: Any) -> None:
    try:
        pipe.close()
    except OSError:
        logger.debug("pipe of an ended process did not close cleanly", exc_info=True)
