"""Convert Parquet and CSV files to JSON lines in a sandboxed process, because their parsers are in C."""

import time
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.base.errors import Unavailable
from backend.base.sandbox.errors import Died, Refused, TimedOut, Unusable
from backend.base.sandbox.process import Sandbox
from backend.catalog.datasets.unpacking import MAX_COMPRESSION_RATIO, RATIO_FREE_BYTES, BadFile

KINDS = (".csv", ".parquet")
OPERATIONS = "backend.catalog.datasets.table_operations"
MAX_ANSWER_SECONDS = 60.0
MAX_TOTAL_SECONDS = 600.0
"""Maximum total time to read a file, in seconds."""


def table_lines(path: Path, kind: str, *, max_bytes: int) -> Iterator[bytes]:
    """Yield the rows in pieces of complete JSON lines.

    Raises BadFile if the file is damaged or expands too much, and Unavailable if no sandbox can be started.
    """
    deadline, size = time.monotonic() + MAX_TOTAL_SECONDS, 0
    packed_bytes = path.stat().st_size
    request: dict[str, Any] = {"path": str(path), "at": 0, "row": 0, "names": []}
    with Sandbox(OPERATIONS, additional_paths=(path,)) as sandbox:
        while request["at"] is not None:
            seconds = min(MAX_ANSWER_SECONDS, deadline - time.monotonic())
            if seconds <= 0:
                raise BadFile(f"takes more than {MAX_TOTAL_SECONDS:.0f} seconds to read")
            chunk, next_fields = _read_lines(sandbox, kind, request, seconds)
            size += len(chunk)
            if size > max_bytes:
                raise BadFile(f"is larger than {max_bytes:,} bytes when unpacked")
            if size > RATIO_FREE_BYTES and size > MAX_COMPRESSION_RATIO * packed_bytes:
                raise BadFile(f"unpacks to more than {MAX_COMPRESSION_RATIO} times its size")
            yield chunk
            request |= {"row": request["row"] + chunk.count(b"\n"), **next_fields}


def _read_lines(
    sandbox: Sandbox, kind: str, request: dict[str, Any], seconds: float
) -> tuple[bytes, dict[str, Any]]:
    """Return JSON lines, and the fields to change in the request for the next lines."""
    try:
        answer = sandbox.run_operation(kind.removeprefix("."), seconds=seconds, **request)
    except Refused as error:
        error_class, _, message = str(error).partition(": ")
        reason = message if error_class == "ValueError" else f"is not a valid {kind} file ({message[:200]})"
        raise BadFile(reason) from None
    except (TimedOut, Died) as error:
        raise BadFile(f"cannot be read: {error}") from None
    except Unusable as error:
        raise Unavailable(
            f"Parquet and CSV are read in the sandbox, which does not start here: {error}"
        ) from None
    return _validate_answer(answer, request)


def _validate_answer(answer: Any, request: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Validate an answer of a possibly compromised process, and return its lines and the next position."""
    try:
        lines = b64decode(answer["lines"], validate=True)
        next_position, names = answer["next"], answer.get("names", [])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _invalid_answer() from None
    is_forward = next_position is None or (
        isinstance(next_position, int) and next_position > request["at"] and lines
    )
    if not is_forward or not isinstance(names, list):
        raise _invalid_answer()
    return lines, {"at": next_position, "names": names}


def _invalid_answer() -> BadFile:
    return BadFile("cannot be read: the sandbox sent an invalid answer")
