"""The sandboxed process, `python -m backend.base.sandbox.server ORDERS`, which answers requests.

It confines itself first. It is a warm parent, which imports what operations need and never reads hostile
text. A fork with stricter limits answers each request that contains such text, and is killed afterwards, so
that it cannot affect the next request. Both pipes carry JSON, one object per line. A request asks for one or
more answers, of which `at_a_time` are computed concurrently. Each is sent as soon as it is available, with
its index in the request:

    stdin   {"op": "equal", "seconds": 2.0, "at_a_time": 1, "each": [{"expected": "1/2", "found": "0.5"}]}
    stdout  {"prepared": true}, then {"at": 0, "value": true}
            or, for "value", "error": "...", "timeout": true, "died": "..."
"""

import importlib
import json
import logging
import os
import resource
import select
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from backend.base.sandbox import forks, landlock, seccomp
from backend.base.sandbox.forks import (
    CLIENT_DESCRIPTOR,
    GRACE_SECONDS,
    Forks,
    Rules,
    answer,
    die_with_parent,
    encode_reply,
    error_text,
    lower_limit,
)
from backend.base.sandbox.operation import Operation, Request

PREPARE_SECONDS = 120.0
MAX_PROCESSES = 256


class Orders(NamedTuple):
    """The configuration that a sandboxed process receives when it is started."""

    operations: str
    """Name of the module that defines `OPERATIONS`."""
    layers: list[str]
    """Names of the layers that this machine supports. The process fails if it cannot apply one of them."""
    readable: list[str]
    executable: list[str]
    devices: list[str]
    memory_bytes: int
    network: bool
    processes: bool
    scratch: str
    """The only directory that libraries may write to while they are imported."""
    is_plugin: bool
    """Whether it runs user code, which may print and may write to `scratch`, emptied after each call."""
    forgets: bool
    """Whether a fork serves each request, so that nothing of it stays in the memory of this process."""


def main() -> None:
    """Confine this process, then answer requests until standard input ends."""
    orders = Orders(**json.loads(sys.argv[1]))
    replies = os.dup(1)
    os.dup2(2, 1)  # keeps the output of libraries out of the answers
    try:
        server = _confined_server(orders, replies)
    except Exception as error:  # noqa: BLE001 - the client must receive every error
        os.write(replies, encode_reply({"unusable": error_text(error)}))
        return
    server.say({"ready": True})
    if orders.forgets:
        while _serve_in_fork(server):
            pass
    else:
        for line in sys.stdin:
            server.serve(json.loads(line))
    os._exit(0)  # do not wait for threads that a plugin started during its import


def _serve_in_fork(server: "Server") -> bool:
    """Serve one request in a separate fork, and return whether to expect another request."""
    select.select([CLIENT_DESCRIPTOR], [], [])
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent()
            line = sys.stdin.readline()
            if line:
                server.serve(json.loads(line))
                os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    return status == 0


def _confined_server(orders: Orders, replies: int) -> "Server":
    if not orders.is_plugin:
        logging.disable(logging.CRITICAL)
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, 1)
        os.dup2(null_device, 2)
        os.close(null_device)
    fork_filter = confine(orders)
    return Server(importlib.import_module(orders.operations).OPERATIONS, orders, replies, fork_filter)


def confine(orders: Orders) -> Any:
    """Apply every requested layer to this process, and return the filter that its forks load in addition."""
    filters: list[Any] = []
    if "seccomp" in orders.layers:
        filters = [
            seccomp.parent_filter(network=orders.network),
            seccomp.fork_filter(
                processes=orders.processes,
                may_write=orders.is_plugin,
                network=orders.network,
                sees_own_files_only="namespaces" in orders.layers,
            ),
        ]
    lower_limit(resource.RLIMIT_AS, orders.memory_bytes)
    lower_limit(resource.RLIMIT_CORE, 0)
    lower_limit(resource.RLIMIT_FSIZE, forks.MAX_WRITTEN_BYTES)
    lower_limit(resource.RLIMIT_NOFILE, forks.MAX_OPEN_FILES)
    if "namespaces" in orders.layers:  # the kernel counts processes by user namespace
        lower_limit(resource.RLIMIT_NPROC, MAX_PROCESSES)
    if "landlock" in orders.layers:
        landlock.restrict(
            map(Path, orders.readable),
            executable_paths=map(Path, orders.executable),
            devices=map(Path, orders.devices),
            network=orders.network,
            scratch=Path(orders.scratch),
        )
    if filters:
        filters[0].load()
    return filters[-1] if filters else None


class Server:
    """Answers requests, one at a time."""

    def __init__(
        self, operations: Mapping[str, Operation], orders: Orders, replies: int, strict: Any
    ) -> None:
        self._operations = operations
        self._replies = replies
        self._forks = Forks(
            Rules(
                strict=strict,
                writes=orders.is_plugin,
                scratch=Path(orders.scratch),
                ends_all="namespaces" in orders.layers and orders.processes,
            )
        )

    def say(self, reply: Mapping[str, Any]) -> None:
        """Write one line to the client."""
        line = encode_reply(reply)
        while line:
            line = line[os.write(self._replies, line) :]

    def serve(self, request: Request) -> None:
        """Prepare a request, report that it is prepared, and send its answers."""
        # if the trainer is killed while this process hangs in C code, the default action of SIGALRM ends it
        signal.setitimer(signal.ITIMER_REAL, PREPARE_SECONDS)
        operation = self._operations[request["op"]]
        subrequests = [{**request, **fields} for fields in request["each"]]
        try:
            operation.prepare(subrequests[0])
        except Exception as error:  # noqa: BLE001 - user code; the trainer handles the error
            self.say({"unusable": error_text(error)})
            return
        self.say({"prepared": True})
        self._arm_timer(request)
        if not operation.is_forked:
            self.say({"at": 0, **json.loads(answer(operation, subrequests[0]))})
        else:
            for index, reply in self._forks.replies(operation, subrequests, at_a_time=request["at_a_time"]):
                self.say({"at": index, **reply})
                self._arm_timer(request)
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _arm_timer(self, request: Request) -> None:
        signal.setitimer(signal.ITIMER_REAL, request["seconds"] + 2 * GRACE_SECONDS)


if __name__ == "__main__":
    main()
