"""Parquet and CSV files as lines of JSON, read in a sandboxed process: their readers are written in C."""

import time
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.base.errors import Unavailable
from backend.base.sandbox.errors import Died, Refused, TimedOut, Unusable
from backend.base.sandbox.process import Sandbox
from backend.catalog.datasets.unpacking import MAX_RATIO, RATIO_FREE_BYTES, BadFile

KINDS = (".csv", ".parquet")
OPERATIONS = "backend.catalog.datasets.table_operations"
ANSWER_SECONDS = 60.0
ALL_SECONDS = 600.0
"""Time limit of all answers about a file together, in seconds."""


def table_lines(path: Path, kind: str, *, max_bytes: int) -> Iterator[bytes]:
    """Yield the rows in pieces of whole lines; raises BadFile if the file is damaged or expands too much.

    Raises Unavailable where no sandbox can be started.
    """
    deadline, size = time.monotonic() + ALL_SECONDS, 0
    packed = path.stat().st_size
    request: dict[str, Any] = {"path": str(path), "at": 0, "row": 0, "names": []}
    with Sandbox(OPERATIONS, further=(path,)) as sandbox:
        while request["at"] is not None:
            seconds = min(ANSWER_SECONDS, deadline - time.monotonic())
            if seconds <= 0:
                raise BadFile(f"takes more than {ALL_SECONDS:.0f} seconds to read")
            piece, told = _ask(sandbox, kind, request, seconds)
            size += len(piece)
            if size > max_bytes:
                raise BadFile(f"is larger than {max_bytes:,} bytes when unpacked")
            if size > RATIO_FREE_BYTES and size > MAX_RATIO * packed:
                raise BadFile(f"unpacks to more than {MAX_RATIO} times its size")
            yield piece
            request |= {"row": request["row"] + piece.count(b"\n"), **told}


def _ask(
    sandbox: Sandbox, kind: str, request: dict[str, Any], seconds: float
) -> tuple[bytes, dict[str, Any]]:
    """Return lines of JSON, and the changes of the request that continue after them."""
    try:
        answer = sandbox.ask(kind.removeprefix("."), seconds=seconds, **request)
    except Refused as error:
        kind_of_error, _, words = str(error).partition(": ")
        reason = words if kind_of_error == "ValueError" else f"is not what {kind} stands for ({words[:200]})"
        raise BadFile(reason) from None
    except (TimedOut, Died) as error:
        raise BadFile(f"cannot be read: {error}") from None
    except Unusable as error:
        raise Unavailable(
            f"Parquet and CSV are read in the sandbox, which does not start here: {error}"
        ) from None
    return _validate_answer(answer, request)


def _validate_answer(answer: Any, request: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Validate an answer, which a compromised process may have sent; return its lines and the next
    position.
    """
    try:
        lines = b64decode(answer["lines"], validate=True)
        at, names = answer["next"], answer.get("names", [])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _invalid_answer() from None
    is_forward = at is None or (isinstance(at, int) and at > request["at"] and lines)
    if not is_forward or not isinstance(names, list):
        raise _invalid_answer()
    return lines, {"at": at, "names": names}


def _invalid_answer() -> BadFile:
    return BadFile("cannot be read: the sandbox sent an invalid answer")
