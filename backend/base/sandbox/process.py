"""The client of a sandboxed process, which starts it when needed, sends requests and enforces time limits.

Model text is hostile. A completion such as 9^(9^(9^9)) hangs a computer algebra system inside one C call that
no thread or signal handler can interrupt, and a completion that is evaluated as code has all permissions of
the process. Such work therefore runs in a process that can be killed and has almost no permissions: see
layers.py.
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
from backend.base.sandbox.paths import NETWORK_PATHS, PROGRAM_PATHS, code_paths, existing_paths
from backend.base.sandbox.server import PREPARE_SECONDS, Orders
from backend.base.settings import Settings
from backend.base.text import read_json

MAX_LINE_BYTES = 2_000_000

REMOVAL_SECONDS = 60.0

INHERITED_VARIABLES = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""Environment variables that every sandboxed process inherits. None of them holds a secret."""

DEFAULT_PERMISSIONS = Permissions(memory_gb=4)

logger = logging.getLogger(__name__)


class Sandbox:
    """A sandboxed process that is started when it is first needed, and again after it was killed.

    `operations` names the module whose `OPERATIONS` it serves. `plugin` names a module of user code, which
    becomes visible. Its output is shown, and it can write to a private directory, which is emptied after each
    call. The paths in `additional_paths` are also visible. With `forgets_requests`, nothing of a request
    stays in the memory that later forks inherit, and the results of `prepare` are lost too. With `plugin` or
    `runs_programs`, the first request raises SandboxIncomplete if the machine cannot confine programs.
    """

    def __init__(
        self,
        operations: str,
        *,
        permissions: Permissions = DEFAULT_PERMISSIONS,
        plugin: str = "",
        additional_paths: tuple[Path, ...] = (),
        forgets_requests: bool = False,
        runs_programs: bool = False,
        settings: Settings | None = None,
    ) -> None:
        self._operations = operations
        self._permissions = permissions
        self._plugin = plugin
        self._further = additional_paths
        self._forgets = forgets_requests
        self._settings = settings or Settings()
        self._runs_programs = runs_programs
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    @property
    def pid(self) -> int | None:
        """Id of the outermost process, or None if no process is running."""
        return self._process.pid if self._process else None

    def run_operation(self, op: str, *, seconds: float, **request: Any) -> Any:
        """Return the value of an operation.

        Raises TimedOut after `seconds`, Died if the process ended, Refused with the message of an error that
        the operation raised, or Unusable if the process could not start or prepare the request.
        """
        [answer] = self.ask_each(op, [request], seconds=seconds, at_a_time=1)
        if isinstance(answer, SandboxError):
            raise answer
        return answer

    def ask_each(
        self, op: str, requests: Sequence[Mapping[str, Any]], *, seconds: float, at_a_time: int, **common: Any
    ) -> Iterator[Any]:
        """Yield the value of each request, or its SandboxError, in the order of the requests.

        `at_a_time` requests run concurrently, each for at most `seconds`. Raises Unusable like `ask`. If the
        caller does not consume all answers, the process is killed.
        """
        if not requests:
            return
        self._prepare({**common, "op": op, "seconds": seconds, "at_a_time": at_a_time, "each": requests})
        answers: dict[int, Any] = {}
        missing_indices = set(range(len(requests)))
        is_complete = False
        try:
            for index in range(len(requests)):
                while index not in answers:
                    answers |= self._next_answer(missing_indices, seconds)
                    missing_indices -= answers.keys()
                yield answers.pop(index)
            is_complete = True
        finally:
            if not is_complete:
                self.close()

    def _next_answer(self, missing_indices: set[int], seconds: float) -> dict[int, Any]:
        """Return the next answer by its index, or the error for all missing answers if the process failed."""
        try:
            reply = self._read(seconds + GRACE_SECONDS)
            index = reply.pop("at", None)
            if type(index) is not int or index not in missing_indices:
                self.close()
                raise Died("the sandboxed process sent an invalid message")
            return {index: self._value_or_error(reply, seconds)}
        except SandboxError as error:
            return dict.fromkeys(missing_indices, error)

    def _value_or_error(self, reply: dict[str, Any], seconds: float) -> Any:
        match reply:
            case {"value": value}:
                return value
            case {"error": message}:
                return Refused(excerpt(message))
            case {"timeout": True}:
                return TimedOut(f"no answer within {seconds:g} seconds")
            case {"died": message}:
                return Died(excerpt(message))
        self.close()
        raise Died("the sandboxed process sent an invalid message")

    def close(self) -> None:
        """Kill the process. The next request starts a new one."""
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
        """Start the process if needed, send the request, and wait until the process has prepared it."""
        try:
            if self._process is None:
                self._start()
                self._expect("ready")
            self._write(json.dumps(request).encode() + b"\n")
            self._expect("prepared")
        except SandboxError as error:
            raise Unusable(str(error)) from error

    def _expect(self, expected: str) -> None:
        reply = self._read(PREPARE_SECONDS)
        if expected not in reply:
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
            *(existing_paths(NETWORK_PATHS) if self._permissions.network else []),
            *(existing_paths(PROGRAM_PATHS) if self._permissions.processes else []),
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
            start_new_session=True,  # Ctrl-C must reach only the trainer, which ends this process itself
            bufsize=0,
        )

    def _orders(self, visible: list[Path], scratch: str) -> Orders:
        permissions = self._permissions
        return Orders(
            operations=self._operations,
            layers=layer_names()["on"],
            readable=list(map(str, visible)),
            executable=list(map(str, [*existing_paths(PROGRAM_PATHS), *visible]))
            if permissions.processes
            else [],
            devices=list(map(str, existing_paths(bubblewrap.DEVICES))),
            memory_bytes=int(permissions.memory_gb * 2**30),
            network=permissions.network,
            processes=permissions.processes,
            scratch=scratch,
            is_plugin=bool(self._plugin),
            forgets=self._forgets,
        )

    def _environment(self, scratch: str) -> dict[str, str]:
        """Return the environment variables of the process, with the project on the import path."""
        inherited_names = [*INHERITED_VARIABLES, *self._permissions.variables]
        inherited_variables = {name: os.environ[name] for name in inherited_names if name in os.environ}
        import_path = os.pathsep.join(filter(None, [str(CODE_ROOT), os.environ.get("PYTHONPATH", "")]))
        # with a fixed hash seed, tasks that iterate over sets ask the same question in every process
        fixed_variables = {
            "PATH": os.pathsep.join(PROGRAM_PATHS),
            "HOME": scratch,
            "TMPDIR": scratch,
            "PYTHONPATH": import_path,
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MPLBACKEND": "Agg",
        }
        return {**inherited_variables, **fixed_variables}

    def _write(self, line: bytes) -> None:
        process = self._process
        assert process is not None and process.stdin is not None  # noqa: PT018, S101 - for the type checker
        try:
            unwritten_bytes = memoryview(line)
            while unwritten_bytes:  # a signal may interrupt a long write
                unwritten_bytes = unwritten_bytes[process.stdin.write(unwritten_bytes) :]
        except OSError as error:
            self.close()
            raise Died(f"the sandboxed process failed: {error}") from error

    def _read(self, seconds: float) -> dict[str, Any]:
        """Return the next reply. Kill the process and raise an error if there is none."""
        try:
            reply = read_json(self._read_line(seconds))
        except (OSError, ValueError) as error:
            self.close()
            raise Died(f"the sandboxed process failed: {error}") from error
        # also after any other exception, because the next request would read the reply to this one
        except BaseException:
            self.close()
            raise
        if not isinstance(reply, dict):
            self.close()
            raise Died("the sandboxed process sent an invalid message")
        return reply

    def _read_line(self, seconds: float) -> bytes:
        process = self._process
        assert process is not None and process.stdout is not None  # noqa: PT018, S101 - for the type checker
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
    """Remove the files of a plugin, including directories that are nested too deep for `shutil.rmtree`."""
    try:
        scratch.cleanup()
    except (OSError, RecursionError):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["/bin/rm", "-rf", "--", scratch.name], timeout=REMOVAL_SECONDS, check=False)
