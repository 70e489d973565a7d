"""Sandbox operations that read a Parquet file, a few thousand rows at a time."""

import json
import os
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import numpy as np

from backend.base.sandbox.operation import Operation, Request
from backend.config.messages import question_text
from backend.exchange.imports.texts import MAX_TEXT_CHARACTERS

MAX_COLUMNS = 2_000
MAX_LABEL = 200
MAX_DISTINCT = 200
"""Maximum number of distinct labels in one answer; a column with more does not identify runs."""
MAX_REPLY_BYTES = 600_000
"""Maximum text of one answer before JSON encoding, unless it is a single row."""
ROWS_AT_ONCE = 256
"""Number of rows of texts that are skipped together; each requested row is read separately."""
MAX_ROW_BYTES = 700_000
"""Maximum size of a row's exact texts, which fit in an answer of the sandbox as base64."""


def _import(_request: Request) -> None:
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # other pools reserve more memory than the limit
    import pyarrow.parquet

    pyarrow.set_cpu_count(1)


def _open(request: Request) -> Any:
    import pyarrow.parquet

    path = request["path"]
    metadata = pyarrow.parquet.read_metadata(path)
    leaves = (metadata.schema.column(number) for number in range(metadata.num_columns))
    texts = [
        leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY" and leaf.max_repetition_level == 0
    ]
    # Texts stay dictionary codes until a row is returned, because each answer decodes all earlier rows.
    return pyarrow.parquet.ParquetFile(path, metadata=metadata, pre_buffer=False, read_dictionary=texts)


def schema(request: Request) -> dict[str, Any]:
    """Return the columns with their kinds and examples of text, and the number of rows."""
    file = _open(request)
    fields = list(file.schema_arrow)
    if len(fields) > MAX_COLUMNS:
        raise ValueError(f"more than {MAX_COLUMNS:,} columns")
    first = next(file.iter_batches(batch_size=1, use_threads=False), None)
    examples = first.to_pylist()[0] if first is not None and first.num_rows else {}
    columns = []
    for field in fields:
        kind = _kind(field.type)
        example = "" if kind == "number" else str(examples.get(field.name))[:MAX_LABEL]
        columns.append([field.name, kind, example])
    return {"rows": file.metadata.num_rows, "columns": columns}


def _kind(type_: Any) -> str:
    from pyarrow import types

    if types.is_dictionary(type_):
        return _kind(type_.value_type)
    if types.is_timestamp(type_):
        return "number"
    if types.is_integer(type_) or types.is_floating(type_) or types.is_boolean(type_):
        return "number"
    return "number" if types.is_decimal(type_) else "text" if _is_text(type_) else "other"


def _is_text(type_: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_))


def _batches(file: Any, row: int, size: int, columns: list[str]) -> Iterator[Any]:
    """Yield batches of rows from a row on, at most to the end of its row group."""
    first = 0
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if row < first + rows:
            skip = row - first
            for batch in file.iter_batches(size, [group], columns, use_threads=False):
                if skip >= batch.num_rows:
                    skip -= batch.num_rows
                else:
                    yield batch.slice(skip)
                    skip = 0
            return
        first += rows


def values(request: Request) -> dict[str, Any]:
    """Return numbers of some rows by column as float64, a bit mask of present values, and labels."""
    names, labels = list(request["columns"]), list(request["labels"])
    size, row = int(request["size"]), int(request["row"])
    batch = next(_batches(_open(request), row, size, [*names, *labels]), None)
    if batch is None or not batch.num_rows:
        raise ValueError(f"row {row} is missing: the file holds fewer than it says")
    batch = batch.slice(0, size)
    columns = [_numbers(batch.column(name)) for name in names]
    numbers = b"".join(values.tobytes() for values, _ in columns)
    is_there = b"".join(np.packbits(mask).tobytes() for _, mask in columns)
    packed_columns = {"numbers": b64encode(numbers).decode(), "is_there": b64encode(is_there).decode()}
    return {
        "used": batch.num_rows,
        "labels": {name: _labels(batch.column(name)) for name in labels},
        **packed_columns,
    }


def _numbers(column: Any) -> tuple[Any, Any]:
    """Return (values as float64, mask of present values); times are in Unix time."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    is_there = np.asarray(column.is_valid())
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        return np.asarray(column.fill_null(0), np.float64) / 1e6, is_there
    return np.asarray(column.cast(pa.float64(), safe=False).fill_null(0.0), np.float64), is_there


def _labels(column: Any) -> dict[str, Any]:
    """Return the distinct texts, and each row's index into them; empty if there are too many."""
    texts: dict[str, int] = {}
    codes = [
        texts.setdefault("" if text is None else str(text)[:MAX_LABEL], len(texts))
        for text in column.to_pylist()
    ]
    return (
        {"texts": list(texts), "codes": codes} if len(texts) <= MAX_DISTINCT else {"texts": [], "codes": []}
    )


def rows(request: Request) -> dict[str, Any]:
    """Return rows as JSON for columns with text; long texts are truncated, and messages become one text."""
    row, rows_of_cells, size = int(request["row"]), list[Any](), 0
    for batch in _batches(_open(request), row, ROWS_AT_ONCE, list(request["columns"])):
        for number in range(batch.num_rows):
            (values,) = batch.slice(number, 1).to_pylist()
            cells = [_cell(values[name]) for name in request["columns"]]
            size += len(json.dumps(cells))
            if rows_of_cells and size > MAX_REPLY_BYTES:
                return {"rows": rows_of_cells}
            rows_of_cells.append(cells)
    return {"rows": rows_of_cells}


def cells(request: Request) -> dict[str, Any]:
    """Return exact numbers and texts of some rows: numbers as in `values`; texts as lengths (-1 for null) and
    bytes.

    If the texts are long, fewer rows than requested are returned.
    """
    names, texts = list(request["numbers"]), list(request["texts"])
    size, row = int(request["size"]), int(request["row"])
    batch = next(_batches(_open(request), row, size, [*names, *texts]), None)
    if batch is None or not batch.num_rows:
        raise ValueError(f"row {row} is missing: the file holds fewer than it says")
    batch = batch.slice(0, size)
    columns = [[_bytes(value) for value in batch.column(name).to_pylist()] for name in texts]
    row_count, total = batch.num_rows, 0
    for number, values in enumerate(zip(*columns, strict=True)):
        size = sum(len(value or b"") for value in values)
        if not number and size > MAX_ROW_BYTES:
            raise ValueError(f"row {row} has texts of {size:,} bytes; expected at most {MAX_ROW_BYTES:,}")
        total += size
        if number and total > MAX_REPLY_BYTES:
            row_count = number
            break
    number_columns = [_numbers(batch.column(name).slice(0, row_count)) for name in names]
    packed_columns = {
        "numbers": b"".join(values.tobytes() for values, _ in number_columns),
        "is_there": b"".join(np.packbits(mask).tobytes() for _, mask in number_columns),
        "lengths": np.array(
            [[-1 if v is None else len(v) for v in c[:row_count]] for c in columns], "<i4"
        ).tobytes(),
        "texts": b"".join(value or b"" for column in columns for value in column[:row_count]),
    }
    return {
        "used": row_count,
        **{name: b64encode(content).decode() for name, content in packed_columns.items()},
    }


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode("utf-8", "surrogatepass")


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return question_text(value)[: MAX_TEXT_CHARACTERS + 1]


OPERATIONS = {
    "parquet-schema": Operation(schema, _import),
    "parquet-values": Operation(values, _import),
    "parquet-rows": Operation(rows, _import),
    "parquet-cells": Operation(cells, _import),
}
