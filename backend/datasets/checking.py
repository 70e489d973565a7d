"""Checks of an upload, from its bytes to a data set in its place."""

import threading
import time
from collections.abc import Iterator
from hashlib import sha256

from backend.config.rows import Columns, LineError, LineSplitter, RowCheck
from backend.datasets.files import Draft, Upload, Uploads
from backend.datasets.tables import KINDS as TABLES
from backend.datasets.tables import table_lines
from backend.datasets.unpacking import BadFile, unpacked
from backend.errors import FieldError, InvalidRequest

_one_at_a_time = threading.Lock()
"""Checking takes a whole processor: whoever uploads second waits."""


def place_upload(
    uploads: Uploads, packed: Draft, *, name: str, kind: str, columns: Columns, most_bytes: int
) -> tuple[Upload, bool]:
    """Unpack, check, hash and keep; (the data set, whether it is new). InvalidRequest names the lines."""
    with _one_at_a_time, uploads.draft() as content:
        check, lines, digest, size = RowCheck(columns), LineSplitter(), sha256(), 0
        packed.file.seek(0)
        try:
            for piece in _pieces(packed, kind, most_bytes):
                digest.update(piece)
                content.file.write(piece)
                size += len(piece)
                for line in lines.feed(piece):
                    check.take(line)
                if check.is_over:
                    break
        except BadFile as error:
            check.errors.insert(0, LineError(0, str(error)))
        for line in lines.finish():
            check.take(line)
        if errors := check.finish():
            unit = "row" if kind in TABLES else "line"
            raise InvalidRequest([_field_error(error, name, unit) for error in errors])
        found = Upload(
            sha256=digest.hexdigest(), name=name, rows=check.rows, bytes=size, uploaded_at=time.time()
        )
        return uploads.keep(content, found)


def _pieces(packed: Draft, kind: str, most_bytes: int) -> Iterator[bytes]:
    """The content as JSONL."""
    if kind not in TABLES:
        return unpacked(packed.file, kind, most_bytes=most_bytes)
    packed.file.flush()
    return table_lines(packed.path, kind, most_bytes=most_bytes)


def _field_error(error: LineError, name: str, unit: str) -> FieldError:
    return (
        FieldError(f"{unit} {error.line}", error.reason)
        if error.line
        else FieldError("file", f"{name!r} {error.reason}")
    )
