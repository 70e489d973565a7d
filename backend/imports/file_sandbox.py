"""Files that are read in the sandbox as a whole: it sees the file itself, and nothing else but code."""

import shutil
import tempfile
import time
from pathlib import Path
from typing import IO, Any, Self

from backend.imports.table import BadLog
from backend.sandbox.process import Died, Refused, Sandbox, TimedOut

ANSWER_SECONDS = 20.0
FILE_SECONDS = 120.0
"""For all answers about one file together."""


class FileSandbox:
    """One sandboxed process for one file. Its answers are checked before they are used."""

    def __init__(self, operations: str, file: IO[bytes]) -> None:
        self._copy: Any = None
        name = getattr(file, "name", None)
        if isinstance(name, str) and Path(name).is_file():
            self._path = Path(name).absolute()
        else:  # an upload has no name, so that nothing stays behind where this process is killed
            self._copy = tempfile.NamedTemporaryFile(prefix="grpolab-import-")
            file.seek(0)
            shutil.copyfileobj(file, self._copy)
            self._copy.flush()
            self._path = Path(self._copy.name)
        self._sandbox = Sandbox(operations, further=(self._path,))
        self._deadline = time.monotonic() + FILE_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sandbox.close()
        if self._copy is not None:
            self._copy.close()

    def ask(self, operation: str, **request: Any) -> dict[str, Any]:
        """The answer of an operation, an object. Raises BadLog."""
        seconds = min(ANSWER_SECONDS, self._deadline - time.monotonic())
        if seconds <= 0:
            raise BadLog(f"takes more than {FILE_SECONDS:.0f} seconds to read")
        try:
            answer = self._sandbox.ask(operation, seconds=seconds, path=str(self._path), **request)
        except Refused as error:
            raise BadLog(f"is damaged: {str(error).partition(': ')[2][:300]}") from None
        except (TimedOut, Died) as error:
            raise BadLog(f"cannot be read: {error}") from None
        if not isinstance(answer, dict):
            raise no_sense()
        return answer


def no_sense() -> BadLog:
    """The error of an answer that no reader gives: a process that was taken over may say anything."""
    return BadLog("cannot be read: the answer of the sandbox makes no sense")
