"""Forks of the warm parent, each of which computes one answer under stricter limits."""

import contextlib
import ctypes
import gc
import json
import os
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from backend.base.sandbox.operation import Operation, Request

GRACE_SECONDS = 2.0
MAX_REPLY_BYTES = 4_000_000
MAX_OUTPUT_BYTES = 256 * 1024
"""Maximum size of a program's standard output, in bytes. A program that prints more is killed."""

MAX_OPEN_FILES = 256
MAX_WRITTEN_BYTES = 64 * 2**20
PR_SET_PDEATHSIG = 1
"""Option of prctl(2) from <linux/prctl.h> that sets the signal sent when the parent dies."""

CLIENT_DESCRIPTOR = 0
"""File descriptor of the client's pipe. During a request it becomes readable only if the client exits."""

Reply = Mapping[str, Any]


class Rules(NamedTuple):
    """The rules for every fork of one warm parent."""

    strict: Any
    """Filter of system calls, or None if this machine does not support one."""
    writes: bool
    """Whether each fork may write to its own directory below `scratch`."""
    scratch: Path
    ends_all: bool
    """Whether a fork may start processes, which are killed with it. Then only one fork runs at a time."""


class Fork:
    """The parent's view of one fork."""

    def __init__(self, index: int, operation: Operation, request: Request, rules: Rules) -> None:
        self.index = index
        self.is_program = operation.is_program
        self._output = b""
        self._directory = Path(tempfile.mkdtemp(dir=rules.scratch)) if rules.writes else None
        self._input = str(request["stdin"]).encode(errors="replace") if self.is_program else b""
        self.pipe, write_end = os.pipe()
        program_stdin, self.stdin = os.pipe() if self.is_program else (-1, -1)
        self.deadline = time.monotonic() + request["seconds"]
        self._pid = os.fork()
        if self._pid == 0:
            _run_fork(
                operation, request, rules, pipe=write_end, stdin=program_stdin, directory=self._directory
            )
        os.close(write_end)
        if self.is_program:
            os.close(program_stdin)
            os.set_blocking(self.stdin, False)

    def feed(self) -> None:
        """Write as much as the program's standard input accepts, and close it after the last byte."""
        try:
            self._input = self._input[os.write(self.stdin, self._input) :] if self._input else b""
        except BlockingIOError:
            return
        except OSError:  # the program has closed it
            self._input = b""
        if not self._input:
            self._close_input()

    def read(self) -> Reply | None:
        """Read output of the fork. Return the reply, or None if it is not complete yet."""
        block = os.read(self.pipe, 65536)
        self._output += block
        maximum = MAX_OUTPUT_BYTES if self.is_program else MAX_REPLY_BYTES
        if len(self._output) > maximum:
            return self.end({"died": f"it answered more than {maximum:,} bytes"})
        if self.is_program:
            return None if block else self._end_program()
        if block and not self._output.endswith(b"\n"):
            return None
        return self.end(_validate_reply(self._output) if block else None)

    def end(self, reply: Reply | None) -> Reply:
        """Kill the fork and its children, remove its files, and return the reply.

        If `reply` is None, return a reply with the exit code.
        """
        code = os.waitstatus_to_exitcode(self._kill())
        return reply or {"died": f"the process that worked on it ended with code {code}"}

    def _end_program(self) -> Reply:
        """Wait until a program that has closed its output exits, and return its output and exit code.

        Return a timeout if it does not exit before its deadline.
        """
        while True:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._clean()
                code = os.waitstatus_to_exitcode(status)
                return {"value": {"output": self._output.decode(errors="replace"), "code": code}}
            if time.monotonic() > self.deadline:
                return self.end({"timeout": True})
            time.sleep(0.001)

    def _kill(self) -> int:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        self._clean()
        return status

    def _clean(self) -> None:
        os.close(self.pipe)
        self._close_input()
        if self._directory is not None:
            shutil.rmtree(self._directory)

    def _close_input(self) -> None:
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1


class Forks:
    """Answers requests in forks of this process, several at a time."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def replies(
        self, operation: Operation, requests: Sequence[Request], *, at_a_time: int
    ) -> Iterator[tuple[int, Reply]]:
        """Yield the index and the reply of each request as soon as the reply is complete."""
        pending_requests = list(enumerate(requests))[::-1]
        running_forks: list[Fork] = []
        maximum = 1 if self._rules.ends_all or operation.is_program else at_a_time
        gc.freeze()
        while pending_requests or running_forks:
            while pending_requests and len(running_forks) < maximum:
                index, request = pending_requests.pop()
                running_forks.append(Fork(index, operation, request, self._rules))
            reply_by_fork = self._collect_replies(running_forks)
            running_forks = [fork for fork in running_forks if fork not in reply_by_fork]
            if not running_forks:
                self._clear()
            yield from ((fork.index, reply) for fork, reply in reply_by_fork.items())

    def _collect_replies(self, working_forks: Sequence[Fork]) -> dict[Fork, Reply]:
        """Wait until forks have answered or run out of time, and return them with their replies.

        Raises SystemExit if the client has exited, which ends this process and all forks.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(CLIENT_DESCRIPTOR, selectors.EVENT_READ)
            for fork in working_forks:
                selector.register(fork.pipe, selectors.EVENT_READ)
                if fork.stdin >= 0:
                    selector.register(fork.stdin, selectors.EVENT_WRITE)
            first_deadline = min(fork.deadline for fork in working_forks)
            ready_descriptors = {
                key.fd for key, _ in selector.select(max(0.0, first_deadline - time.monotonic()))
            }
        reply_by_fork: dict[Fork, Reply] = {}
        for fork in working_forks:
            if fork.stdin in ready_descriptors:
                fork.feed()
            if fork.pipe in ready_descriptors:
                reply = fork.read()
            else:
                reply = fork.end({"timeout": True}) if time.monotonic() >= fork.deadline else None
            if reply is not None:
                reply_by_fork[fork] = reply
        if CLIENT_DESCRIPTOR in ready_descriptors and not reply_by_fork:
            raise SystemExit
        return reply_by_fork

    def _clear(self) -> None:
        """Kill processes that a fork left running, and remove its files."""
        if self._rules.ends_all:
            with contextlib.suppress(ProcessLookupError):  # all processes except the first and this one
                os.kill(-1, signal.SIGKILL)
        if self._rules.writes:
            _empty_directory(self._rules.scratch)


def _run_fork(
    operation: Operation, request: Request, rules: Rules, *, pipe: int, stdin: int, directory: Path | None
) -> None:
    """Answer one request and exit. Never returns."""
    code = 1
    try:
        die_with_parent()
        os.setpgid(0, 0)
        if operation.is_program:
            os.dup2(stdin, 0)
            os.dup2(pipe, 1)
            os.closerange(3, MAX_OPEN_FILES)
        else:
            os.closerange(3, pipe)
            os.closerange(pipe + 1, MAX_OPEN_FILES)
            os.close(0)
        if directory is not None:
            os.environ["TMPDIR"] = os.environ["HOME"] = tempfile.tempdir = str(directory)
        lower_limit(
            resource.RLIMIT_CPU, request.get("cpu_seconds", int(request["seconds"] + GRACE_SECONDS) + 1)
        )
        lower_limit(resource.RLIMIT_FSIZE, MAX_WRITTEN_BYTES if rules.writes else 0)
        if "memory_bytes" in request:
            lower_limit(resource.RLIMIT_AS, request["memory_bytes"])
        if rules.strict is not None:
            rules.strict.load()
        if operation.is_program:
            code = operation.answer(request)
        else:
            reply = answer(operation, request)
            while reply:
                reply = reply[os.write(pipe, reply) :]
            code = 0
    finally:
        os._exit(code)


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def lower_limit(kind: int, value: int) -> None:
    """Lower a limit of this process permanently."""
    _, hard_limit = resource.getrlimit(kind)
    maximum = value if hard_limit == resource.RLIM_INFINITY else min(value, hard_limit)
    with contextlib.suppress(
        *(() if sys.platform == "linux" else (OSError, ValueError))
    ):  # macOS lacks some limits
        resource.setrlimit(kind, (maximum, maximum))


def answer(operation: Operation, request: Request) -> bytes:
    """Return the encoded value or error of a request. Hostile text or user code may raise any exception."""
    try:
        return encode_reply({"value": operation.answer(request)})
    except Exception as error:  # noqa: BLE001 - see above; the trainer handles the error
        return encode_reply({"error": error_text(error)})


def encode_reply(reply: Reply) -> bytes:
    """Return a reply as one line of JSON."""
    return json.dumps(reply).encode() + b"\n"


def error_text(error: Exception) -> str:
    """Return the class name and the message of an error."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the exception class may be a user's own
        text = "(no message)"
    return f"{type(error).__name__}: {text}"[:2000]


def _validate_reply(reply_bytes: bytes) -> Reply:
    """Return the value or error of a fork's reply, and drop all else, because the fork may be compromised."""
    try:
        reply = json.loads(reply_bytes)
    except (ValueError, RecursionError):
        return {"died": "it answered nonsense"}
    if isinstance(reply, dict) and len(reply) == 1 and reply.keys() <= {"value", "error"}:
        return reply
    return {"died": "it answered nonsense"}


def _empty_directory(directory: Path) -> None:
    """Remove the content of a directory. An error ends this process, and the client starts a new one."""
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink()
