"""The client of a sandboxed process: starts it when needed, sends requests, and kills it at its limits.

Model text is hostile: a completion such as 9^(9^(9^9)) hangs a computer algebra system inside one C call,
which no thread or signal handler can interrupt, and one that reaches an evaluator can do what the process may
do. Such work is therefore done in a process that can be killed and has almost no permissions: see layers.py.
"""

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from backend.base.locations import CODE_ROOT
from backend.base.plugin_permissions import Permissions
from backend.base.sandbox import bubblewrap
from backend.base.sandbox.errors import Died, Refused, SandboxError, TimedOut, Unusable, excerpt
from backend.base.sandbox.forks import GRACE_SECONDS
from backend.base.sandbox.layers import check_programs, check_sandbox, layer_names
from backend.base.sandbox.paths import NETWORK, PROGRAMS, code_paths, existing_paths
from backend.base.sandbox.server import PREPARE_SECONDS, Orders
from backend.base.settings import Settings
from backend.base.text import read_json

MAX_LINE_BYTES = 2_000_000

REMOVING_SECONDS = 60.0

ENVIRONMENT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""Environment variables that every sandboxed process inherits; none of them holds a secret."""

NOTHING = Permissions(memory_gb=4)

logger = logging.getLogger(__name__)


class Sandbox:
    """One sandboxed process, started when it is first needed and again after it was killed.

    `operations` names the module whose `OPERATIONS` it serves. With `plugin`, the module of a user's own
    code, that code is visible too, what it prints is shown, and it can write to a directory of its own, which
    is emptied after each call. `further` paths are visible as well. One that `forgets` keeps nothing of a
    request in the memory that later forks inherit; what it prepares is lost, too. One with a plugin, or that
    `runs_programs`, raises SandboxIncomplete when it is first asked on a machine that could not confine them.
    """

    def __init__(
        self,
        operations: str,
        *,
        permissions: Permissions = NOTHING,
        plugin: str = "",
        further: tuple[Path, ...] = (),
        forgets: bool = False,
        runs_programs: bool = False,
        settings: Settings | None = None,
    ) -> None:
        self._operations = operations
        self._permissions = permissions
        self._plugin = plugin
        self._further = further
        self._forgets = forgets
        self._settings = settings or Settings()
        self._runs_programs = runs_programs
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    @property
    def pid(self) -> int | None:
        """Id of the outermost process; None while no process runs."""
        return self._process.pid if self._process else None

    def ask(self, op: str, *, seconds: float, **request: Any) -> Any:
        """Return the value of an operation.

        Raises TimedOut after `seconds`, Died, Refused with the operation's own words, or Unusable when the
        process could not be started or could not prepare itself.
        """
        [answer] = self.ask_each(op, [request], seconds=seconds, at_a_time=1)
        if isinstance(answer, SandboxError):
            raise answer
        return answer

    def ask_each(
        self, op: str, requests: Sequence[Mapping[str, Any]], *, seconds: float, at_a_time: int, **common: Any
    ) -> Iterator[Any]:
        """Yield the value of each request, or the SandboxError that it met, in the order of the requests.

        `at_a_time` of them are worked on at once, each for at most `seconds`. Raises Unusable as `ask` does.
        Whoever does not take all answers ends the process.
        """
        if not requests:
            return
        self._prepare({**common, "op": op, "seconds": seconds, "at_a_time": at_a_time, "each": requests})
        answers: dict[int, Any] = {}
        missing = set(range(len(requests)))
        is_complete = False
        try:
            for at in range(len(requests)):
                while at not in answers:
                    answers |= self._next_answer(missing, seconds)
                    missing -= answers.keys()
                yield answers.pop(at)
            is_complete = True
        finally:
            if not is_complete:
                self.close()

    def _next_answer(self, missing: set[int], seconds: float) -> dict[int, Any]:
        """Return the next answer by its place; the error for all that are missing when the process itself
        fails.
        """
        try:
            reply = self._read(seconds + GRACE_SECONDS)
            at = reply.pop("at", None)
            if type(at) is not int or at not in missing:
                self.close()
                raise Died("the sandboxed process sent an invalid message")
            return {at: self._value_or_error(reply, seconds)}
        except SandboxError as error:
            return dict.fromkeys(missing, error)

    def _value_or_error(self, reply: dict[str, Any], seconds: float) -> Any:
        match reply:
            case {"value": value}:
                return value
            case {"error": words}:
                return Refused(excerpt(words))
            case {"timeout": True}:
                return TimedOut(f"no answer within {seconds:g} seconds")
            case {"died": words}:
                return Died(excerpt(words))
        self.close()
        raise Died("the sandboxed process sent an invalid message")

    def close(self) -> None:
        """End the process; a later `ask` starts a new one."""
        process, self._process, self._unread = self._process, None, b""
        scratch, self._scratch = self._scratch, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # bubblewrap's children are in its process group
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if scratch is not None:
            _remove(scratch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self, request: dict[str, Any]) -> None:
        """Start the process, send the request, and wait until its imports are done, within a separate time
        limit.
        """
        try:
            if self._process is None:
                self._start()
                self._expect("ready")
            self._write(json.dumps(request).encode() + b"\n")
            self._expect("prepared")
        except SandboxError as error:
            raise Unusable(str(error)) from error

    def _expect(self, word: str) -> None:
        reply = self._read(PREPARE_SECONDS)
        if word not in reply:
            self.close()
            raise Unusable(excerpt(reply.get("unusable", "the sandboxed process sent an invalid message")))

    def _start(self) -> None:
        check_sandbox(self._settings)
        if self._plugin or self._runs_programs:
            check_programs(self._settings)
        visible = [
            *code_paths(self._settings, module=self._plugin),
            *self._permissions.directories,
            *self._further,
            *(existing_paths(NETWORK) if self._permissions.network else []),
            *(existing_paths(PROGRAMS) if self._permissions.processes else []),
        ]
        is_namespaced = not bubblewrap.unavailable_reason()
        if not is_namespaced:
            self._scratch = tempfile.TemporaryDirectory(prefix="grpolab-sandbox-")
        scratch = self._scratch.name if self._scratch else bubblewrap.SCRATCH
        orders = json.dumps(self._orders(visible, scratch)._asdict())
        argv = [sys.executable, "-W", "ignore", "-m", "backend.base.sandbox.server", orders]
        environment = self._environment(scratch)
        if is_namespaced:
            argv = bubblewrap.sandbox_command(
                argv,
                environment,
                visible=visible,
                network=self._permissions.network,
            )
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd="/",
            start_new_session=True,  # Ctrl-C is for the trainer, which ends this process itself
            bufsize=0,
        )

    def _orders(self, visible: list[Path], scratch: str) -> Orders:
        may = self._permissions
        return Orders(
            operations=self._operations,
            layers=layer_names()["on"],
            readable=list(map(str, visible)),
            executable=list(map(str, [*existing_paths(PROGRAMS), *visible])) if may.processes else [],
            devices=list(map(str, existing_paths(bubblewrap.DEVICES))),
            memory_bytes=int(may.memory_gb * 2**30),
            network=may.network,
            processes=may.processes,
            scratch=scratch,
            is_plugin=bool(self._plugin),
            forgets=self._forgets,
        )

    def _environment(self, scratch: str) -> dict[str, str]:
        """Return the process's environment variables, with the project on the import path."""
        names = [*ENVIRONMENT, *self._permissions.variables]
        granted = {name: os.environ[name] for name in names if name in os.environ}
        path = os.pathsep.join(filter(None, [str(CODE_ROOT), os.environ.get("PYTHONPATH", "")]))
        # a fixed hash seed makes tasks that iterate over sets give the same question in every process
        fixed = {
            "PATH": os.pathsep.join(PROGRAMS),
            "HOME": scratch,
            "TMPDIR": scratch,
            "PYTHONPATH": path,
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MPLBACKEND": "Agg",
        }
        return {**granted, **fixed}

    def _write(self, line: bytes) -> None:
        process = self._process
        assert process is not None and process.stdin is not None  # noqa: PT018, S101 - told to the type checker
        try:
            unwritten = memoryview(line)
            while unwritten:  # a signal may interrupt a long one
                unwritten = unwritten[process.stdin.write(unwritten) :]
        except OSError as error:
            self.close()
            raise Died(f"the sandboxed process failed: {error}") from error

    def _read(self, seconds: float) -> dict[str, Any]:
        """Return the next reply; without one the process is killed."""
        try:
            reply = read_json(self._read_line(seconds))
        except (OSError, ValueError) as error:
            self.close()
            raise Died(f"the sandboxed process failed: {error}") from error
        # after any exception, because the next request would read the reply to this one
        except BaseException:
            self.close()
            raise
        if not isinstance(reply, dict):
            self.close()
            raise Died("the sandboxed process sent an invalid message")
        return reply

    def _read_line(self, seconds: float) -> bytes:
        process = self._process
        assert process is not None and process.stdout is not None  # noqa: PT018, S101 - told to the type checker
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimedOut(f"no answer within {seconds:g} seconds")
                self._take(os.read(process.stdout.fileno(), 65536), process)
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _take(self, block: bytes, process: "subprocess.Popen[bytes]") -> None:
        if not block:
            raise Died(f"the sandboxed process ended with code {process.wait()}")
        self._unread += block
        if len(self._unread) > MAX_LINE_BYTES:
            raise Died("the sandboxed process sent an endless answer")


def _remove(scratch: "tempfile.TemporaryDirectory[str]") -> None:
    """Remove a plugin's files, including directories that are nested too deep for `shutil.rmtree`."""
    try:
        scratch.cleanup()
    except (OSError, RecursionError):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["/bin/rm", "-rf", "--", scratch.name], timeout=REMOVING_SECONDS, check=False)
