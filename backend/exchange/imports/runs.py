"""Several runs in one table, distinguished by the columns that name a run or its seed."""

from dataclasses import replace

import numpy as np

from backend.exchange.imports.log import Log
from backend.exchange.imports.operations import MAX_RUNS
from backend.exchange.imports.table import Ints, Table, as_number

RUN_NAMES = ("run_name", "run name", "run", "run_id")
"""Columns that name the run of a row, the most readable first."""
SEED = "seed"
LABELS = (*RUN_NAMES, SEED)


def split_runs(log: Log) -> list[Log]:
    """Return a log per run, in the order in which the runs begin; the log itself if there is one run."""
    labels = {name: log.table.labels[name] for name in LABELS if log.table.labels.get(name)}
    keys = list(zip(*labels.values(), strict=True))
    distinct = list(dict.fromkeys(keys))
    if len(distinct) > MAX_RUNS:
        note = f"The columns {', '.join(labels)} name more than {MAX_RUNS} runs: all rows are taken as one."
        log.facts.notes.append(note)
        return [log]
    if not distinct:
        return [log]
    places = {key: number for number, key in enumerate(distinct)}
    tables = split_table(
        log.table, np.array([places[key] for key in keys], np.int64), len(distinct), set(labels)
    )
    tables[0].bad = log.table.bad
    logs = [
        _log(log, table, dict(zip(labels, key, strict=True)))
        for table, key in zip(tables, distinct, strict=True)
    ]
    return _named(logs)


def split_table(table: Table, run_of_row: Ints, runs: int, left_out: set[str]) -> list[Table]:
    """Return a table per run, without the columns that distinguish the runs; a row of run -1 is left out."""
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
        of_value = run_of_row[rows]
        for number, table_of_run in enumerate(tables):
            is_of_run = of_value == number
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
    facts = replace(log.facts, name=name or log.facts.name, seed=seed if seed is not None else log.facts.seed)
    return Log(table, replace(facts, notes=list(log.facts.notes)), log.origin, log.step)


def _named(logs: list[Log]) -> list[Log]:
    """Distinguish runs of one name by their seed; they are seeds of one variant."""
    if len(logs) > 1:
        names = [log.facts.name for log in logs]
        for log in logs:
            facts = log.facts
            if names.count(facts.name) > 1 and facts.seed is not None:
                facts.variant, facts.name = facts.name, f"{facts.name} seed {facts.seed}".strip()
    return logs


MIN_ROWS = 5
"""Rows of a training before a second one begins in the same file."""


def split_trainings(log: Log, step: str) -> list[Log]:
    """A log per training where the steps of a file begin anew; a step that goes back less is a resume."""
    rows, values = log.table.columns[step].numbers()
    first = float(np.nanmin(values)) if len(values) else 0.0
    backward = np.flatnonzero(np.diff(values) < 0) + 1
    begins = [int(place) for place in backward if values[place] <= first]
    parts = np.diff([0, *begins, len(values)])
    if not begins or len(backward) > 1 + len(values) // 20 or parts.min() < MIN_ROWS or len(parts) > MAX_RUNS:
        return [log]
    numbers = np.zeros(len(log.table), np.int64)
    for begin in begins:
        numbers[rows[begin] :] += 1
    tables = split_table(log.table, numbers, len(parts), set())
    tables[0].bad = log.table.bad
    note = (
        f"The steps begin anew {len(begins)} times: these are {len(parts)} trainings, each a run of its own."
    )
    logs = [
        Log(
            table,
            replace(log.facts, name=f"{log.facts.name} training {number}".strip(), notes=[*log.facts.notes]),
            log.origin,
            log.step,
        )
        for number, table in enumerate(tables, 1)
    ]
    logs[0].facts.notes.append(note.replace(" 1 times", " once"))
    return logs
