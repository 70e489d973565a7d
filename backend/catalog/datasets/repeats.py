"""Find rows of an upload that repeat other rows or held-out rows of the same file."""

import threading
from pathlib import Path

from pydantic import ValidationError

from backend.base.documented import Documented
from backend.base.errors import Conflict, Unavailable
from backend.base.sandbox.errors import Died, Refused, TimedOut, Unusable
from backend.base.sandbox.process import Sandbox
from backend.catalog.datasets.files import Upload
from backend.catalog.datasets.guess import ColumnMapping

OPERATIONS = "backend.catalog.datasets.repeats_operations"
COMPARISON_SECONDS = 300.0

_one_at_a_time = threading.Lock()
"""Lock that allows one comparison at a time, because each fully uses a processor core."""


class Twin(Documented):
    """A pair of similar rows."""

    line: int
    """Line number of the row, starting at 1."""
    other: int
    """Line number of the earlier or held-out row that it resembles."""
    similarity: float


class Repeats(Documented):
    """Numbers of training rows of an upload that the filters in `data` could exclude."""

    rows: int
    """Number of rows that are not marked as held out."""
    duplicates: int
    """Number of rows whose question occurs in an earlier row."""
    near: int
    """Number of rows that are similar to an earlier or held-out row, including exact repetitions."""
    contaminated: int
    """Number of rows that share 13 consecutive words with a held-out row."""
    twins: list[Twin]
    """The first ten rows that `near` counts."""


def find_repeats(upload: Upload, path: Path) -> Repeats:
    """Compare the rows of an upload in a sandboxed process.

    Raises Conflict if the rows cannot be compared, and Unavailable if no sandbox can be started.
    """
    columns = (upload.mapping or ColumnMapping()).columns
    try:
        with _one_at_a_time, Sandbox(OPERATIONS, additional_paths=(path,)) as sandbox:
            answer = sandbox.run_operation(
                "repeats",
                seconds=COMPARISON_SECONDS,
                path=str(path),
                prompt_field=columns.prompt,
                answer_field=columns.answer,
            )
        near_duplicates = [
            Twin(line=line, other=other_line, similarity=similarity)
            for line, other_line, similarity in answer.pop("twins")
        ]
        return Repeats.model_validate({**answer, "twins": near_duplicates})
    except Unusable as error:
        raise Unavailable(f"rows are compared in the sandbox, which does not start here: {error}") from None
    except (Refused, TimedOut, Died) as error:
        raise Conflict(f"the rows of {upload.name!r} could not be compared: {str(error)[:200]}") from None
    except (AttributeError, KeyError, TypeError, ValueError, ValidationError):
        raise Conflict(f"the rows of {upload.name!r} could not be compared") from None
