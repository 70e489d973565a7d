"""Sandbox operations that convert the rows of a Parquet or CSV file to JSON lines."""

import csv
import json
import os
from base64 import b64encode
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from backend.base.sandbox.operation import Operation, Request

MAX_ANSWER_BYTES = 600_000
"""Maximum size of the lines in one answer, in bytes. At least one row is always sent."""

MAX_ROW_BYTES = 400_000
"""Maximum size of a row, in bytes. A longer row is truncated, and later refused as invalid JSON."""

MAX_COLUMNS = 2_000
MAX_NAME_CHARACTERS = 20_000
"""Maximum total length of all column names, in characters."""

BATCH_ROWS = 256
ABSENT_IF_EMPTY = ("id", "split", "domain", "tools")
"""Optional fields that are dropped if they are empty, because a table has every column in every row."""


def _import_readers(_request: Request) -> None:
    # the other allocators reserve more memory than the sandbox allows
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    import pyarrow.parquet

    pyarrow.set_cpu_count(1)


def parquet_rows(request: Request) -> dict[str, Any]:
    """Return rows of a Parquet file, starting at the row `at`. `next` is None after the last row."""
    import pyarrow.parquet

    row = int(request["at"])
    with pyarrow.parquet.ParquetFile(request["path"], pre_buffer=False) as file:
        _check_schema(list(file.schema_arrow))
        lines = JsonLines()
        for batch in _read_batches(file, row):
            for table_row in batch.to_pylist():
                if not lines.add(table_row):
                    return lines.answer(row)
                row += 1
        return lines.answer(None)


def _check_schema(fields: list[Any]) -> None:
    if len(fields) > MAX_COLUMNS:
        raise ValueError(f"has more than {MAX_COLUMNS:,} columns")
    _check_names([field.name for field in fields])
    for field in fields:
        if _holds_bytes(field.type):
            raise ValueError(f"column {field.name!r} holds bytes (images, audio), which cannot be trained on")


def _check_names(names: list[str]) -> None:
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"has two columns of the name {duplicates[0][:60]!r}")


def _holds_bytes(kind: Any) -> bool:
    from pyarrow import types

    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    if is_bytes or types.is_fixed_size_binary(kind):
        return True
    return any(_holds_bytes(kind.field(index).type) for index in range(kind.num_fields))


def _read_batches(file: Any, row: int) -> Iterator[Any]:
    """Yield batches of rows, starting at `row`. Earlier row groups are not read."""
    group_start = 0
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if row < group_start + rows:
            skip = max(0, row - group_start)
            for batch in file.iter_batches(BATCH_ROWS, [group], use_threads=False):
                if skip < batch.num_rows:
                    yield batch.slice(skip)
                skip = max(0, skip - batch.num_rows)
        group_start += rows


def csv_rows(request: Request) -> dict[str, Any]:
    """Return rows of a CSV file, starting at the byte offset `at`, and the column names.

    All values are text.
    """
    csv.field_size_limit(MAX_ROW_BYTES)
    number, names = int(request["row"]), list(request["names"])
    with Path(request["path"]).open("rb") as file:
        file.seek(int(request["at"]))
        texts = TextLines(file)
        records = csv.reader(texts, strict=True)
        try:
            if not names:
                names = next(records, [])
                names[:1] = [name.removeprefix("\ufeff") for name in names[:1]]
                _check_header(names)
            lines, offset = JsonLines(), texts.read
            for record in records:
                if record:
                    number += 1
                    row = _csv_row(names, record, number)
                    if not lines.add(row):
                        return lines.answer(offset) | {"names": names}
                offset = texts.read
        except csv.Error as error:
            raise ValueError(f"row {number + 1} is not CSV ({error})") from None
        except UnicodeDecodeError as error:
            raise ValueError(
                f"row {number + 1} is not UTF-8 ({error.reason}): save the file as CSV in UTF-8"
            ) from None
    return lines.answer(None) | {"names": names}


class TextLines:
    """An iterator over the lines of a file as text, with the offset after the last line that was read."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.read = file.tell()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._file.readline(MAX_ROW_BYTES)
        if not line:
            raise StopIteration
        self.read += len(line)
        if len(line) == MAX_ROW_BYTES and not line.endswith(b"\n"):
            raise csv.Error(f"it is longer than {MAX_ROW_BYTES:,} bytes")
        return str(line.decode())


def _check_header(names: list[str]) -> None:
    if not names:
        raise ValueError("has no first line with the names of its columns")
    if len(names) > MAX_COLUMNS:
        raise ValueError(f"has more than {MAX_COLUMNS:,} columns")
    if "\0" in "".join(names):
        raise ValueError("is not text: its first line holds NUL bytes")
    if sum(map(len, names)) > MAX_NAME_CHARACTERS:
        raise ValueError(f"has a first line of more than {MAX_NAME_CHARACTERS:,} characters")
    _check_names(names)


def _csv_row(names: list[str], record: list[str], number: int) -> dict[str, str]:
    if len(record) != len(names):
        raise ValueError(f"row {number} has {len(record)} values, the first line has {len(names)} names")
    return dict(zip(names, record, strict=True))


class JsonLines:
    """Rows as JSON lines, up to the maximum size of an answer, which is less than 1 MB in base64."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._bytes = 0

    def add(self, row: dict[str, Any]) -> bool:
        """Add a row, and return whether it fitted. A row that does not fit is not added."""
        fields = {
            key: value for key, value in row.items() if value not in (None, "") or key not in ABSENT_IF_EMPTY
        }
        line = json.dumps(_replace_nan(fields), ensure_ascii=False, default=_to_json).encode(
            "utf-8", "surrogatepass"
        )
        line = line[:MAX_ROW_BYTES]
        if self._lines and self._bytes + len(line) > MAX_ANSWER_BYTES:
            return False
        self._lines.append(line)
        self._bytes += len(line) + 1
        return True

    def answer(self, next_: int | None) -> dict[str, Any]:
        """Return the lines in base64 and the position of the next row."""
        text = b"".join(line + b"\n" for line in self._lines)
        return {"next": next_, "lines": b64encode(text).decode()}


def _replace_nan(value: Any) -> Any:
    """Replace NaN, which pandas writes for missing numbers, with None."""
    if isinstance(value, dict):
        return {key: _replace_nan(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_nan(child) for child in value]
    return None if isinstance(value, float) and value != value else value  # noqa: PLR0124 - NaN alone differs


def _to_json(value: Any) -> Any:
    """Convert values of types that JSON lacks, such as dates."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.isoformat() if isinstance(value, date | datetime | time) else str(value)


OPERATIONS = {"parquet": Operation(parquet_rows, _import_readers), "csv": Operation(csv_rows)}
