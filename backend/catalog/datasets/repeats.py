"""Rows of an upload that repeat one another, or what the file itself holds out."""

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
"""Comparing takes a whole processor."""


class Twin(Documented):
    """Two rows that are much alike."""

    line: int
    """Line of the file, starting at 1."""
    other: int
    """Line of the earlier one, or of the held-out one."""
    similarity: float


class Repeats(Documented):
    """Training rows of an upload that `data` may leave out."""

    rows: int
    """Rows that are not marked as held out."""
    duplicates: int
    """Number of rows whose question occurs in an earlier row."""
    near: int
    """Rows much like an earlier one or a held-out one, exact repetitions included."""
    contaminated: int
    """Rows that share 13 words in a row with a held-out one."""
    twins: list[Twin]
    """The first ten of `near`."""


def repeats_of(upload: Upload, path: Path) -> Repeats:
    """Compare the rows of an upload in a separate process.

    Raises Conflict where that is not possible, or Unavailable where no sandbox can be started.
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
