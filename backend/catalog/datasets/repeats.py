"""Rows of an upload that repeat other rows, or the file's own held-out rows."""

import threading
from pathlib import Path

from pydantic import ValidationError

from backend.base.documented import Documented
from backend.base.errors import Conflict, Unavailable
from backend.base.sandbox.errors import Died, Refused, TimedOut, Unusable
from backend.base.sandbox.process import Sandbox
from backend.catalog.datasets.files import Upload
from backend.catalog.datasets.guess import Mapped

OPERATIONS = "backend.catalog.datasets.repeats_operations"
SECONDS = 300.0

_one_at_a_time = threading.Lock()
"""Lock for a comparison, which takes a whole processor core."""


class Twin(Documented):
    """Two rows that are much alike."""

    line: int
    """Line of the file, starting at 1."""
    other: int
    """Line of the earlier or held-out row that it resembles."""
    similarity: float


class Repeats(Documented):
    """Training rows of an upload that `data` may leave out."""

    rows: int
    """Rows that are not marked as held out."""
    duplicates: int
    """Number of rows whose question occurs in an earlier row."""
    near: int
    """Number of rows that are similar to an earlier or held-out row, exact repetitions included."""
    contaminated: int
    """Rows that share 13 words in a row with a held-out one."""
    twins: list[Twin]
    """The first ten of `near`."""


def find_repeats(upload: Upload, path: Path) -> Repeats:
    """Compare the rows of an upload in a sandboxed process. Raises Conflict if the rows cannot be compared,
    and Unavailable if no sandbox can be started.
    """
    columns = (upload.mapping or Mapped()).columns
    try:
        with _one_at_a_time, Sandbox(OPERATIONS, further=(path,)) as sandbox:
            answer = sandbox.ask(
                "repeats",
                seconds=SECONDS,
                path=str(path),
                prompt_field=columns.prompt,
                answer_field=columns.answer,
            )
        twins = [
            Twin(line=line, other=other_line, similarity=alike)
            for line, other_line, alike in answer.pop("twins")
        ]
        return Repeats.model_validate({**answer, "twins": twins})
    except Unusable as error:
        raise Unavailable(f"rows are compared in the sandbox, which does not start here: {error}") from None
    except (Refused, TimedOut, Died) as error:
        raise Conflict(f"the rows of {upload.name!r} could not be compared: {str(error)[:200]}") from None
    except (AttributeError, KeyError, TypeError, ValueError, ValidationError):
        raise Conflict(f"the rows of {upload.name!r} could not be compared") from None
