"""The files of an import, and the sandboxed process that reads binary files."""

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import IO, Any, Self

from backend.base.sandbox.errors import Died, Refused, TimedOut
from backend.base.sandbox.process import Sandbox
from backend.exchange.imports.table import MAX_POINTS, BadLog

OPERATIONS = "backend.exchange.imports.sandbox_operations"
MAX_REPLY_SECONDS = 20.0
MAX_LOG_SECONDS = 90.0
"""Time limit of all answers of an import together, in seconds; other imports wait meanwhile."""
MAX_ARCHIVE_SECONDS = 200.0
"""Time limit of all answers about an archive of a run together, in seconds."""


PREFIX = "grpolab-import-"
LEFTOVER_SECONDS = 60.0
"""Age in seconds after which an unlocked directory is considered left behind by a killed import."""


def _remove_leftovers() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            if time.time() - path.lstat().st_mtime < LEFTOVER_SECONDS:
                continue
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
            finally:
                os.close(lock)


class ImportSandbox:
    """A sandboxed process for one import, which can only access code and copies of the files it reads."""

    def __init__(self, all_seconds: float = MAX_LOG_SECONDS) -> None:
        _remove_leftovers()
        self._directory = tempfile.TemporaryDirectory(prefix=PREFIX)
        self._lock = os.open(self._directory.name, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._sandbox = Sandbox(OPERATIONS, additional_paths=(Path(self._directory.name),))
        self._all_seconds = all_seconds
        self._deadline = time.monotonic() + all_seconds
        self._numbers = count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sandbox.close()
        self._directory.cleanup()
        os.close(self._lock)

    def new_path(self) -> Path:
        """Return the path of a new file that the sandboxed process can read."""
        return Path(self._directory.name) / str(next(self._numbers))

    def run_operation(self, operation: str, **request: Any) -> Any:
        """Return the answer of an operation; raise BadLog if the total time is exceeded, or like
        `Sandbox.ask`.
        """
        seconds = min(MAX_REPLY_SECONDS, self._deadline - time.monotonic())
        if seconds <= 0:
            raise BadLog(f"takes more than {self._all_seconds:.0f} seconds to read")
        return self._sandbox.run_operation(operation, seconds=seconds, **request)


class LogFile:
    """A file that is read as a log: the imported file, or one in an archive."""

    def __init__(
        self,
        content: IO[bytes],
        sandbox: ImportSandbox,
        name: str = "",
        path: Path | None = None,
        max_values: int = MAX_POINTS,
    ) -> None:
        self.content = content
        self.sandbox = sandbox
        self.name = name
        """Label of the file, which is never used as a path."""
        self.max_values = max_values
        """Number of values that the import may still read."""
        self._own_path = path

    @cached_property
    def _path(self) -> Path:
        if self._own_path is not None:
            return self._own_path
        path = self.sandbox.new_path()
        self.content.seek(0)
        with path.open("wb") as copy:
            shutil.copyfileobj(self.content, copy)
        return path

    def run_operation(self, operation: str, **request: Any) -> dict[str, Any]:
        """Return the answer of an operation on the complete file, a JSON object; raise BadLog."""
        try:
            answer = self.sandbox.run_operation(operation, path=str(self._path), **request)
        except Refused as error:
            raise BadLog(f"is damaged: {str(error).partition(': ')[2][:300]}") from None
        except (TimedOut, Died) as error:
            raise BadLog(f"cannot be read: {error}") from None
        if not isinstance(answer, dict):
            raise invalid_reply()
        return answer


def invalid_reply() -> BadLog:
    """Return the error for an invalid answer, which only a compromised process sends."""
    return BadLog("cannot be read: the sandbox sent an invalid answer")
