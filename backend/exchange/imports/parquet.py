"""Import Parquet: tables of metrics from pandas and Trackio, or completions from TRL and others.

TRL's tables are those of trl.trainer.GRPOTrainer.log, version 1.16: step, prompt, completion, a column for
each reward function and for each additional value that these log, and advantage.
"""

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.exchange.imports.completions import Completions, Sample, parse_reward_terms, parse_step
from backend.exchange.imports.dumps import is_dump, log_of_rows
from backend.exchange.imports.log import Log, build_completion_log
from backend.exchange.imports.log_file import LogFile, invalid_reply
from backend.exchange.imports.runs import LABELS, split_runs
from backend.exchange.imports.table import MAX_POINTS, BadLog, Floats, Table, as_number

MAX_CELLS = 150_000
"""Maximum number of cells in one answer of the sandbox, encoded as base64."""
COMPLETION_COLUMNS = {"step", "prompt", "completion"}
TRACKIO_COLUMNS = {"id", "run_name", "step", "timestamp"}
TRACKIO_OWN = ("id", "log_id", "space_id")
"""Columns of Trackio's database that are not metrics."""


def read_parquet(file: LogFile) -> list[Log]:
    """Return a log for each run of the table; raise BadLog."""
    rows, columns = _schema(file)
    kinds = {name: kind for name, kind, _ in columns}
    if kinds.keys() >= COMPLETION_COLUMNS and kinds["completion"] != "number":
        return [_completions(file, rows, kinds)]
    if is_dump({name: 0 if kind == "number" else "" for name, kind in kinds.items()}):
        return [log_of_rows(_rows(file, rows, list(kinds)), Table(file.max_values), file.name)]
    table = _table(file, rows, columns)
    if not kinds.keys() >= TRACKIO_COLUMNS:
        return split_runs(Log(table))
    for name in TRACKIO_OWN:
        table.columns.pop(name, None)
    return split_runs(Log(table, origin="trackio"))


def _schema(file: LogFile) -> tuple[int, list[tuple[str, str, str]]]:
    answer = file.run_operation("parquet-schema")
    try:
        rows = int(answer["rows"])
        columns = [(str(name), str(kind), str(example)) for name, kind, example in answer["columns"]]
    except (KeyError, TypeError, ValueError):
        raise invalid_reply() from None
    if rows > MAX_POINTS:
        raise BadLog(f"has {rows:,} rows; at most {MAX_POINTS:,} are imported")
    if not rows or not columns:
        raise BadLog("has no rows")
    if len({name for name, _, _ in columns}) < len(columns):
        raise BadLog("has two columns of one name")
    return rows, columns


def _table(file: LogFile, rows: int, columns: list[tuple[str, str, str]]) -> Table:
    table = Table(file.max_values)
    numbers = [name for name, kind, _ in columns if kind == "number"]
    labels = [name for name, kind, _ in columns if name in LABELS and kind == "text"]
    for name, kind, example in columns:
        column = table.column(name)
        if kind != "number":
            column.texts, column.example = rows, repr(example[:40])
    table.lines.extend([0] * rows)
    size, row = max(1, MAX_CELLS // max(1, len(numbers) + len(labels))), 0
    labels_by_column: dict[str, list[str]] = {name: [] for name in labels}
    while row < rows and numbers:
        chunk_rows = min(size, rows - row)
        answer = file.run_operation(
            "parquet-values", columns=numbers, labels=labels, row=row, size=chunk_rows
        )
        row_count, values, is_there = _unpack_rows(answer, chunk_rows, len(numbers))
        for name, column_values, mask in zip(numbers, values, is_there, strict=True):
            indices = np.flatnonzero(mask)
            table.extend(name, indices + row, column_values[indices])
        _add_labels(labels_by_column, answer, row_count)
        row += row_count
    for name in LABELS:
        if name in labels_by_column and len(labels_by_column[name]) == rows:
            table.labels[name] = labels_by_column[name]
        elif name in numbers and len(table.columns[name].rows) == rows:
            table.labels[name] = [f"{value:g}" for value in table.columns[name].values]
    return table


def _unpack_rows(answer: dict[str, Any], limit: int, columns: int) -> tuple[int, Floats, NDArray[np.uint8]]:
    """Return (rows, values of each column, 1 for each present value); raise BadLog for an invalid answer."""
    try:
        row_count = int(answer["used"])
        numbers, bits = (b64decode(answer[name], validate=True) for name in ("numbers", "is_there"))
        values = np.frombuffer(numbers).reshape(columns, row_count)
        masks = np.frombuffer(bits, np.uint8).reshape(columns, (row_count + 7) // 8)
    except (KeyError, TypeError, ValueError):
        raise invalid_reply() from None
    if not 0 < row_count <= limit:
        raise invalid_reply()
    return row_count, values, np.unpackbits(masks, axis=1, count=row_count)


def _add_labels(labels_by_column: dict[str, list[str]], metadata: dict[str, Any], rows: int) -> None:
    """Add the labels of more rows; a column with too many distinct labels is removed."""
    try:
        for name in list(labels_by_column):
            texts, codes = metadata["labels"][name]["texts"], metadata["labels"][name]["codes"]
            if len(codes) == rows:
                labels_by_column[name] += [str(texts[code]) for code in codes]
            else:
                del labels_by_column[name]
    except (KeyError, TypeError, IndexError):
        raise invalid_reply() from None


def _completions(file: LogFile, rows: int, kinds: dict[str, str]) -> Log:
    """Return the log of TRL completions; the reward is the sum of its terms, as TRL's weights are 1."""
    terms = [name for name, kind in kinds.items() if kind == "number" and name not in {"step", "advantage"}]
    names = ["step", "prompt", "completion", *(["advantage"] if "advantage" in kinds else []), *terms]
    completions, table = Completions(), Table(file.max_values)
    for number, row in _rows(file, rows, names):
        if completions.is_full:
            completions.beyond += rows - number + 1
            break
        add_completion(completions, table, number, row)
    log = build_completion_log(completions, table, origin="trl")
    log.metadata.notes += sum_note(terms)
    return log


def _rows(file: LogFile, rows: int, names: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number from 1, cells by column) of each row; lists and structs are converted to text."""
    row = 0
    while row < rows:
        cells = file.run_operation("parquet-rows", row=row, columns=names).get("rows")
        if not isinstance(cells, list) or not cells or not all(_is_row(values, names) for values in cells):
            raise invalid_reply()
        for number, values in enumerate(cells, row + 1):
            yield number, dict(zip(names, values, strict=True))
        row += len(cells)


def _is_row(cells: Any, names: list[str]) -> bool:
    return isinstance(cells, list) and len(cells) == len(names)


def add_completion(completions: Completions, table: Table, line: int, row: dict[str, Any]) -> None:
    """Add one row of TRL; a row without a step is reported as a bad line."""
    step = parse_step(row.pop("step"))
    if step is None:
        table.bad.add(line, "has no step: expected a whole number")
        return
    prompt, completion = str(row.pop("prompt") or ""), str(row.pop("completion") or "")
    advantage, terms = as_number(row.pop("advantage", None)), parse_reward_terms(row.items())
    reward = sum(terms.values()) if terms else None
    completions.add(Sample(step, prompt, completion, reward=reward, rewards=terms, advantage=advantage))


def sum_note(terms: list[str]) -> list[str]:
    """Return a sentence if the total reward is not in the log."""
    if len(terms) < 2:
        return []
    return [
        "TRL does not write the total reward: it is the sum of the columns of numbers, with weights of 1."
    ]
