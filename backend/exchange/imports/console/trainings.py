"""Choose the form of the metrics in printed text, and make a log of each training in it."""

from collections import Counter
from collections.abc import Collection

import numpy as np

from backend.exchange.imports.console.read import (
    BARE_PAIRS,
    BARS,
    NUMBERED_PAIRS,
    OBJECTS,
    PAIRS,
    RESULTS,
    TABLE,
    VERL_LINES,
    ConsoleText,
)
from backend.exchange.imports.console.rows import Rows, with_steps
from backend.exchange.imports.console.steps import order_of_rows, steps_of_rows
from backend.exchange.imports.console.terminal import read_segments
from backend.exchange.imports.console.trust import move_evaluations, resolve_tags
from backend.exchange.imports.console.within_steps import resolve_rows_within_steps, rises
from backend.exchange.imports.log import Log, LogMetadata
from backend.exchange.imports.log_file import LogFile
from backend.exchange.imports.names import is_known
from backend.exchange.imports.runs import split_table
from backend.exchange.imports.table import BadLog, Ints

MIN_ROWS = 3
"""Minimum number of rows for unknown names to be accepted as metrics."""
WEIGHT_BY_FORM = {BARS: 0.1, NUMBERED_PAIRS: 0.2, BARE_PAIRS: 0.1}
"""Weight of the values of forms that often repeat other forms; 1 for all others."""
STRAY, WITHIN_STEP = -1, -2
"""Numbers of rows that belong to no training."""


def read_console(file: LogFile) -> list[Log]:
    """Return a log for each training in the text; raise BadLog if there are no metrics."""
    text = ConsoleText(file.max_values)
    text.read(read_segments(file.content))
    return logs_of_text(text)


def logs_of_text(text: ConsoleText) -> list[Log]:
    """Return a log for each training in a text that was read; raise BadLog if there are no metrics."""
    text.end()
    form = max((form for form in text.forms if form != RESULTS), key=lambda form: _weight(text, form))
    rows = text.forms[form]
    if not len(rows) or (not rows.known_values and len(rows) < MIN_ROWS):
        raise _no_metrics()
    if form == BARS:  # bars of another total are those of evaluations or of downloads
        columns = [column for name, column in rows.table.columns.items() if is_known(name)]
        values_by_total = Counter(rows.hints[number].total for column in columns for number in column.rows)
        training_total = values_by_total.most_common(1)[0][0] if columns else rows.hints[0].total
        rows.left_out = [number for number, hint in enumerate(rows.hints) if hint.total != training_total]
    if form == NUMBERED_PAIRS and rises([hint.heading for hint in rows.hints]):
        rows.hints = [hint._replace(step=hint.heading) for hint in rows.hints]
    elif form == NUMBERED_PAIRS and len(text.forms[PAIRS]) >= MIN_ROWS:
        form, rows = PAIRS, text.forms[PAIRS]
        rows.insert(text.forms[NUMBERED_PAIRS])
    if form == PAIRS and len(text.forms[RESULTS]):
        rows.insert(text.forms[RESULTS])
    return _trainings(text, form, rows)


def _no_metrics() -> BadLog:
    return BadLog(
        "has no metrics: no line such as `{'loss': 0.1}`, `step:12 - actor/entropy:0.3` or "
        "`step=12 reward=0.3`, and no table of steps"
    )


def _weight(text: ConsoleText, form: str) -> tuple[float, int, int]:
    rows = text.forms[form]
    return rows.known_values * WEIGHT_BY_FORM.get(form, 1.0), rows.table.points, len(rows)


def _trainings(text: ConsoleText, form: str, rows: Rows) -> list[Log]:
    resolve_tags(rows)
    resolve_rows_within_steps(rows)
    training_of_row = _training_numbers(rows)
    count = int(training_of_row.max()) + 1
    if not count:
        raise _no_metrics()
    logs = []
    for number, table in enumerate(split_table(rows.table, training_of_row, count, set())):
        training_rows = Rows.of_table(table)
        training_rows.hints = [
            hint
            for hint, training_number in zip(rows.hints, training_of_row, strict=True)
            if training_number == number
        ]
        steps, note = steps_of_rows(training_rows, text.total, text.epochs)
        with_steps(table, steps, "step")
        move_evaluations(table, training_rows.hints)
        table.reorder(order_of_rows(training_rows.hints, steps))
        facts = LogMetadata(
            name=f"training {number + 1}" if count > 1 else "", config=dict(text.metadata.config)
        )
        facts.notes += [note] if note else []
        logs.append(Log(table, facts, origin=_origin(form, table.columns), step="step"))
    if (other_lines := text.lines - rows.lines) > 0:
        subject = _count(other_lines, "other line of output was", "other lines of output were")
        logs[0].metadata.notes.append(f"{subject} passed over.")
    if rows.left_out:
        subject = _count(len(rows.left_out), "row without a step was", "rows without a step were")
        logs[0].metadata.notes.append(
            f"{subject} left out: rows of steps have their metrics, or too few steps have them."
        )
    if strays := int((training_of_row == STRAY).sum()):
        subject = _count(strays, "row was left out: it looks", "rows were left out: they look")
        logs[0].metadata.notes.append(
            f"{subject} like a printed config or an object in a completion, not like metrics."
        )
    logs[0].table.bad = rows.table.bad
    return logs


def _count(number: int, singular: str, plural: str) -> str:
    return f"1 {singular}" if number == 1 else f"{number:,} {plural}"


def _origin(form: str, columns: Collection[str]) -> str:
    if form == VERL_LINES:
        return "verl"
    is_trl = form in {OBJECTS, TABLE} and ("completions/mean_length" in columns or "reward_std" in columns)
    return "trl" if is_trl else "text"


def _training_numbers(rows: Rows) -> Ints:
    """Return the index of the training that each row belongs to, from 0; STRAY or WITHIN_STEP for others."""
    numbers = np.zeros(len(rows), np.int64)
    for end in rows.ends:
        if 0 < end < len(rows) and any(not hint.is_eval for hint in rows.hints[end:]):
            numbers[end:] += 1
    numbers[rows.strays()] = STRAY
    numbers[rows.left_out] = WITHIN_STEP
    return numbers
