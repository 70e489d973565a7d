"""Several runs in one table, distinguished by the columns for the name of a run or its seed."""

from dataclasses import replace

import numpy as np

from backend.exchange.imports.log import Log
from backend.exchange.imports.operations import MAX_RUNS
from backend.exchange.imports.table import Ints, Table, as_number

RUN_NAMES = ("run_name", "run name", "run", "run_id")
"""Columns for the name of a row's run, the most readable first."""
SEED = "seed"
LABELS = (*RUN_NAMES, SEED)


def split_runs(log: Log) -> list[Log]:
    """Return a log for each run, in the order in which the runs begin; the log itself if there is one run."""
    labels = {name: log.table.labels[name] for name in LABELS if log.table.labels.get(name)}
    keys = list(zip(*labels.values(), strict=True))
    distinct = list(dict.fromkeys(keys))
    if len(distinct) > MAX_RUNS:
        note = f"The columns {', '.join(labels)} name more than {MAX_RUNS} runs: all rows are taken as one."
        log.metadata.notes.append(note)
        return [log]
    if not distinct:
        return [log]
    indexes = {key: number for number, key in enumerate(distinct)}
    tables = split_table(
        log.table, np.array([indexes[key] for key in keys], np.int64), len(distinct), set(labels)
    )
    tables[0].bad = log.table.bad
    logs = [
        _log(log, table, dict(zip(labels, key, strict=True)))
        for table, key in zip(tables, distinct, strict=True)
    ]
    return _name_runs(logs)


def split_table(table: Table, run_of_row: Ints, runs: int, left_out: set[str]) -> list[Table]:
    """Return a table for each run, without the columns that distinguish runs; rows of run -1 are left out."""
    tables = [Table() for _ in range(runs)]
    lines = np.frombuffer(table.lines, np.int64)
    row_in_run = np.empty(len(lines), np.int64)
    for number, table_of_run in enumerate(tables):
        rows = np.flatnonzero(run_of_row == number)
        row_in_run[rows] = np.arange(len(rows))
        table_of_run.lines.frombytes(lines[rows].tobytes())
    for name, column in table.columns.items():
        if name in left_out:
            continue
        rows, values = column.numbers()
        run_of_value = run_of_row[rows]
        for number, table_of_run in enumerate(tables):
            is_of_run = run_of_value == number
            if is_of_run.any() or not len(rows):
                table_of_run.extend(name, row_in_run[rows[is_of_run]], values[is_of_run])
                table_of_run.columns[name].texts, table_of_run.columns[name].example = (
                    column.texts,
                    column.example,
                )
    return tables


def _log(log: Log, table: Table, labels: dict[str, str]) -> Log:
    name = next((labels[column] for column in RUN_NAMES if labels.get(column)), "")
    number = as_number(labels.get(SEED, ""))
    seed = int(number) if number is not None and number.is_integer() and 0 <= number < 2**31 else None
    metadata = replace(
        log.metadata, name=name or log.metadata.name, seed=seed if seed is not None else log.metadata.seed
    )
    return Log(table, replace(metadata, notes=list(log.metadata.notes)), log.origin, log.step)


def _name_runs(logs: list[Log]) -> list[Log]:
    """Distinguish runs of the same name by their seed; they are seeds of one variant."""
    if len(logs) > 1:
        names = [log.metadata.name for log in logs]
        for log in logs:
            metadata = log.metadata
            if names.count(metadata.name) > 1 and metadata.seed is not None:
                metadata.variant, metadata.name = (
                    metadata.name,
                    f"{metadata.name} seed {metadata.seed}".strip(),
                )
    return logs


MIN_ROWS = 5
"""Minimum number of rows of a training before a second one begins in the same file."""


def split_trainings(log: Log, step: str) -> list[Log]:
    """Return a log for each training if the steps start again; a smaller decrease of the step is a resume."""
    rows, values = log.table.columns[step].numbers()
    first = float(np.nanmin(values)) if len(values) else 0.0
    drops = np.flatnonzero(np.diff(values) < 0) + 1
    starts = [int(index) for index in drops if values[index] <= first]
    sizes = np.diff([0, *starts, len(values)])
    if not starts or len(drops) > 1 + len(values) // 20 or sizes.min() < MIN_ROWS or len(sizes) > MAX_RUNS:
        return [log]
    numbers = np.zeros(len(log.table), np.int64)
    for start in starts:
        numbers[rows[start] :] += 1
    tables = split_table(log.table, numbers, len(sizes), set())
    tables[0].bad = log.table.bad
    note = (
        f"The steps start again {len(starts)} times: the file holds {len(sizes)} trainings, "
        "each imported as its own run."
    )
    logs = [
        Log(
            table,
            replace(
                log.metadata,
                name=f"{log.metadata.name} training {number}".strip(),
                notes=[*log.metadata.notes],
            ),
            log.origin,
            log.step,
        )
        for number, table in enumerate(tables, 1)
    ]
    logs[0].metadata.notes.append(note.replace(" 1 times", " once"))
    return logs
