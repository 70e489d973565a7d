"""Check and preview an upload before it becomes a dataset."""

import threading
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256

from backend.base.errors import FieldError, InvalidRequest
from backend.catalog.datasets.files import Draft, Upload, Uploads
from backend.catalog.datasets.guess import ColumnMapping, guess_mapping
from backend.catalog.datasets.preview import DatasetPreview, make_preview, parse_rows, read_first_lines
from backend.catalog.datasets.tables import KINDS as TABLES
from backend.catalog.datasets.tables import table_lines
from backend.catalog.datasets.unpacking import BadFile, decompress
from backend.config.rows import LineError, LineSplitter, RowCheck

MAX_PREVIEWED_BYTES = 1 << 40
"""Maximum size of a previewed file, in bytes. It is high because only the beginning is read."""

_one_at_a_time = threading.Lock()
"""Lock that makes uploads wait for one another, because a check fully uses a processor core."""


def store_upload(
    uploads: Uploads, packed_draft: Draft, *, name: str, kind: str, columns: Mapping[str, str], max_bytes: int
) -> tuple[Upload, bool]:
    """Decompress, check, hash and store an upload, and return the dataset and whether it is new.

    Columns that are not named are guessed. Raises InvalidRequest with the invalid lines.
    """
    with _one_at_a_time, uploads.draft() as content:
        mapping = ColumnMapping()
        check, lines, digest, size = RowCheck(mapping.columns), LineSplitter(), sha256(), 0
        try:
            first_lines, chunks = read_first_lines(_read_as_jsonl(packed_draft, kind, max_bytes))
            mapping = guess_mapping(parse_rows(first_lines), columns) or mapping
            check = RowCheck(mapping.columns)
            for chunk in chunks:
                digest.update(chunk)
                content.file.write(chunk)
                size += len(chunk)
                for line in lines.feed(chunk):
                    check.check_line(line)
                if check.is_over:
                    break
        except BadFile as error:
            check.errors.insert(0, LineError(0, str(error)))
        for line in lines.finish():
            check.check_line(line)
        if errors := check.finish():
            unit = "row" if kind in TABLES else "line"
            raise InvalidRequest([_field_error(error, name, unit) for error in errors])
        dataset = Upload(
            sha256=digest.hexdigest(),
            name=name,
            rows=check.rows,
            bytes=size,
            uploaded_at=time.time(),
            mapping=mapping,
        )
        return uploads.store(content, dataset)


def preview_upload(
    packed_draft: Draft, *, name: str, kind: str, columns: Mapping[str, str], is_cut: bool
) -> DatasetPreview:
    """Preview the first rows of a file, which may be truncated. Raises InvalidRequest if it has no rows."""
    try:
        lines, _ = read_first_lines(_read_as_jsonl(packed_draft, kind, MAX_PREVIEWED_BYTES), is_cut=is_cut)
        return make_preview(lines, columns)
    except BadFile as error:
        raise InvalidRequest([_field_error(LineError(0, str(error)), name, "row")]) from None


def _read_as_jsonl(packed_draft: Draft, kind: str, max_bytes: int) -> Iterator[bytes]:
    """Return an iterator over the content of an upload as JSONL."""
    packed_draft.file.seek(0)
    if kind not in TABLES:
        return decompress(packed_draft.file, kind, max_bytes=max_bytes)
    if packed_draft.file.writable():
        packed_draft.file.flush()
    return table_lines(packed_draft.path, kind, max_bytes=max_bytes)


def _field_error(error: LineError, name: str, unit: str) -> FieldError:
    return (
        FieldError(f"{unit} {error.line}", error.reason)
        if error.line
        else FieldError("file", f"{name!r} {error.reason}")
    )
