"""Read exact cells of a Parquet table in the sandbox, and validate them before they are used."""

from base64 import b64decode
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.exchange.imports.log_file import LogFile, invalid_reply
from backend.exchange.imports.table import BadLog, Floats

MAX_CELLS = 60_000
"""Maximum number of cells in one answer."""


class Cells(NamedTuple):
    """Some rows of a table."""

    rows: int
    numbers: dict[str, Floats]
    is_there: dict[str, NDArray[np.bool_]]
    texts: dict[str, list[bytes | None]]


def read_cells(file: LogFile, numbers: Sequence[str], texts: Sequence[str], *, limit: int) -> Iterator[Cells]:
    """Yield all rows of a table, with exactly these columns, in order; raise BadLog if it is invalid."""
    answer = file.run_operation("parquet-schema")
    try:
        rows, names = int(answer["rows"]), {str(name) for name, _, _ in answer["columns"]}
    except (KeyError, TypeError, ValueError):
        raise invalid_reply() from None
    if rows > limit:
        raise BadLog(f"{file.name} has {rows:,} rows; at most {limit:,} are imported")
    if missing_names := sorted({*numbers, *texts} - names):
        raise BadLog(f"{file.name} has no column {missing_names[0]}")
    row, size = 0, max(1, MAX_CELLS // (len(numbers) + len(texts)))
    while row < rows:
        chunk_rows = min(size, rows - row)
        reply = file.run_operation(
            "parquet-cells", numbers=list(numbers), texts=list(texts), row=row, size=chunk_rows
        )
        chunk = _check_cells(reply, chunk_rows, numbers, texts)
        yield chunk
        row += chunk.rows


def column_names(file: LogFile) -> list[str]:
    """Return the column names of a table; raise BadLog if it is invalid."""
    try:
        return [str(name) for name, _, _ in file.run_operation("parquet-schema")["columns"]]
    except (KeyError, TypeError, ValueError):
        raise invalid_reply() from None


def _check_cells(answer: dict[str, Any], limit: int, numbers: Sequence[str], texts: Sequence[str]) -> Cells:
    """Return the cells of an answer after checking all sizes, because a compromised process may send
    anything.
    """
    try:
        row_count = int(answer["used"])
        if not 0 < row_count <= limit:
            raise invalid_reply()
        raw = {
            name: b64decode(answer[name], validate=True)
            for name in ("numbers", "is_there", "lengths", "texts")
        }
        values = np.frombuffer(raw["numbers"]).reshape(len(numbers), row_count)
        masks = np.frombuffer(raw["is_there"], np.uint8).reshape(len(numbers), (row_count + 7) // 8)
        lengths = np.frombuffer(raw["lengths"], "<i4").reshape(len(texts), row_count).astype(np.int64)
    except (KeyError, TypeError, ValueError):
        raise invalid_reply() from None
    sizes = np.maximum(lengths, 0).ravel().tolist()
    if (lengths < -1).any() or sum(sizes) != len(raw["texts"]):
        raise invalid_reply()
    text_cells = [raw["texts"][start:end] for start, end in pairwise(accumulate(sizes, initial=0))]
    texts_by_column = {
        name: [
            None if length < 0 else cell
            for length, cell in zip(
                lengths[column].tolist(),
                text_cells[column * row_count : (column + 1) * row_count],
                strict=True,
            )
        ]
        for column, name in enumerate(texts)
    }
    is_there = np.unpackbits(masks, axis=1, count=row_count).astype(bool) if numbers else masks.astype(bool)
    return Cells(
        row_count,
        dict(zip(numbers, values, strict=True)),
        dict(zip(numbers, is_there, strict=True)),
        texts_by_column,
    )
