"""The sandboxed process, `python -m backend.sandbox.server ORDERS`: confines itself, then answers requests.

It is a warm parent: it imports what operations need and never works on hostile text itself. Each such request
is answered by a fork, which is confined further and killed afterwards, so that nothing of it meets the next.
Both pipes carry JSON, an object a line:

    stdin   {"op": "equal", "seconds": 2.0, "expected": "1/2", "found": "0.5"}
    stdout  {"prepared": true}, then {"value": true}, {"error": "..."}, {"timeout": true} or {"died": "..."}
"""

import contextlib
import ctypes
import gc
import importlib
import json
import logging
import os
import resource
import selectors
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from backend.sandbox import landlock, seccomp
from backend.sandbox.operation import Operation, Request

PREPARE_SECONDS = 120.0
GRACE_SECONDS = 2.0
MAX_REPLY_BYTES = 1_000_000
FILES = 256
MOST_PROCESSES = 256
PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>."""

WRITTEN_BYTES = 64 * 2**20


class Orders(NamedTuple):
    """The orders that a sandboxed process gets when it is started."""

    operations: str
    """Name of the module with `OPERATIONS`."""
    layers: list[str]
    """Layers that this machine has: the process fails when it cannot apply one of them."""
    readable: list[str]
    executable: list[str]
    devices: list[str]
    memory_bytes: int
    network: bool
    processes: bool
    scratch: str
    """Directory that libraries may write to while they are imported, and nothing else."""
    is_plugin: bool
    """Whether it is a user's own code, which may print and write to `scratch`, emptied after each call."""


def main() -> None:
    """Confine this process, then answer requests until standard input ends."""
    orders = Orders(**json.loads(sys.argv[1]))
    replies = os.dup(1)
    os.dup2(2, 1)  # whatever the libraries print must not reach the answers
    try:
        server = _confined_server(orders, replies)
    except Exception as error:  # noqa: BLE001 - whatever it is, whoever asks must hear of it
        os.write(replies, _line({"unusable": _words(error)}))
        return
    server.say({"ready": True})
    for line in sys.stdin:
        server.serve(json.loads(line))
    os._exit(0)  # a thread that a plugin started while it was imported would be waited for


def _confined_server(orders: Orders, replies: int) -> "Server":
    if not orders.is_plugin:
        logging.disable(logging.CRITICAL)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.close(nowhere)
    strict = confine(orders)
    return Server(importlib.import_module(orders.operations).OPERATIONS, orders, replies, strict)


def confine(orders: Orders) -> Any:
    """Apply every layer that is asked for to this process; the filter that its forks load further."""
    filters: list[Any] = []
    if "seccomp" in orders.layers:
        filters = [
            seccomp.warm_parent(network=orders.network),
            seccomp.answering(
                processes=orders.processes,
                writes=orders.is_plugin,
                network=orders.network,
                sees_own_files_only="namespaces" in orders.layers,
            ),
        ]
    _limit(resource.RLIMIT_AS, orders.memory_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, WRITTEN_BYTES)
    _limit(resource.RLIMIT_NOFILE, FILES)
    if "namespaces" in orders.layers:  # the kernel counts processes by user namespace
        _limit(resource.RLIMIT_NPROC, MOST_PROCESSES)
    if "landlock" in orders.layers:
        landlock.restrict(
            map(Path, orders.readable),
            executable=map(Path, orders.executable),
            devices=map(Path, orders.devices),
            network=orders.network,
            scratch=Path(orders.scratch),
        )
    if filters:
        filters[0].load()
    return filters[-1] if filters else None


def _die_with_parent() -> None:
    """Have the kernel kill this process when the one that forked it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(
        *(() if sys.platform == "linux" else (OSError, ValueError))
    ):  # macOS has not all
        resource.setrlimit(kind, (most, most))


class Server:
    """Answers one request after the other."""

    def __init__(
        self, operations: Mapping[str, Operation], orders: Orders, replies: int, strict: Any
    ) -> None:
        self._operations = operations
        self._orders = orders
        self._replies = replies
        self._strict = strict

    def say(self, reply: Mapping[str, Any]) -> None:
        """Write one line to whoever asks."""
        self._write(_line(reply))

    def _write(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._replies, line) :]

    def serve(self, request: Request) -> None:
        """Prepare a request, say so, and answer it."""
        # if the trainer is killed while this process hangs in C code, the default action of SIGALRM ends it
        signal.setitimer(signal.ITIMER_REAL, PREPARE_SECONDS)
        operation = self._operations[request["op"]]
        try:
            operation.prepare(request)
        except Exception as error:  # noqa: BLE001 - code of a user's own; the trainer decides what it means
            self.say({"unusable": _words(error)})
            return
        self.say({"prepared": True})
        signal.setitimer(signal.ITIMER_REAL, request["seconds"] + 2 * GRACE_SECONDS)
        self._write(self._forked(operation, request) if operation.is_forked else answer(operation, request))
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _forked(self, operation: Operation, request: Request) -> bytes:
        """What a fork of this process answers within its time."""
        gc.freeze()
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            self._be_the_fork(operation, request, theirs)
        os.close(theirs)
        try:
            reply = _read_reply(ours, seconds=request["seconds"])
        finally:
            os.close(ours)
            code = self._end_forks(pid)
        return _line(reply or {"died": f"the process that worked on it ended with code {code}"})

    def _be_the_fork(self, operation: Operation, request: Request, pipe: int) -> None:
        """Answer one request and leave; never returns."""
        code = 1
        try:
            _die_with_parent()
            os.setpgid(0, 0)
            os.closerange(3, pipe)
            os.closerange(pipe + 1, FILES)
            os.close(0)
            seconds = int(request["seconds"] + GRACE_SECONDS) + 1
            _limit(resource.RLIMIT_CPU, seconds)
            _limit(resource.RLIMIT_FSIZE, WRITTEN_BYTES if self._orders.is_plugin else 0)
            if self._strict is not None:
                self._strict.load()
            reply = answer(operation, request)
            while reply:
                reply = reply[os.write(pipe, reply) :]
            code = 0
        finally:
            os._exit(code)

    def _end_forks(self, pid: int) -> int:
        """Kill a fork and whatever it started, and remove what it wrote; the fork's exit code."""
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if "namespaces" in self._orders.layers and self._orders.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(
                    -1, signal.SIGKILL
                )  # all of this process namespace but its first process and this one
        if self._orders.is_plugin:
            _empty(Path(self._orders.scratch))
        return os.waitstatus_to_exitcode(status)


def answer(operation: Operation, request: Request) -> bytes:
    """The value of a request, or what went wrong: anything can, when text is hostile or code a user's own."""
    try:
        return _line({"value": operation.answer(request)})
    except Exception as error:  # noqa: BLE001 - see above; the trainer decides what an error means
        return _line({"error": _words(error)})


def _line(reply: Mapping[str, Any]) -> bytes:
    return json.dumps(reply).encode() + b"\n"


def _words(error: Exception) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception class of a user's own
        text = "(no message)"
    return f"{type(error).__name__}: {text}"[:2000]


def _read_reply(pipe: int, *, seconds: float) -> Mapping[str, Any]:
    """A fork's one line; {}: it ended without. Ends this process when whoever asks has gone meanwhile."""
    deadline, said = time.monotonic() + seconds, b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)  # no request comes while one is worked on: only the end
        while not said.endswith(b"\n"):
            ready = {key.fd for key, _ in selector.select(max(0.0, deadline - time.monotonic()))}
            if pipe in ready:
                block = os.read(pipe, 65536)
                if not block:
                    return {}
                said += block
                if len(said) > MAX_REPLY_BYTES:
                    return {"died": f"it answered more than {MAX_REPLY_BYTES:,} bytes"}
            elif 0 in ready:
                raise SystemExit  # and the fork ends with it
            else:
                return {"timeout": True}
    return _checked(said)


def _checked(said: bytes) -> Mapping[str, Any]:
    """A fork may have been taken over by what it read: of its words only a value or an error counts."""
    try:
        reply = json.loads(said)
    except (ValueError, RecursionError):
        return {"died": "it answered nonsense"}
    if isinstance(reply, dict) and len(reply) == 1 and reply.keys() <= {"value", "error"}:
        return reply
    return {"died": "it answered nonsense"}


def _empty(directory: Path) -> None:
    """Remove what a call left behind; what cannot be removed ends this process, and a fresh one follows."""
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink()


if __name__ == "__main__":
    main()
