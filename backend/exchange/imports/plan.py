"""Plan an import: which columns of a log are imported under which names, and which are left out and why."""

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.base.errors import FieldError, InvalidRequest
from backend.config.metrics import find_metric
from backend.exchange.imports.completions import Completions
from backend.exchange.imports.guess import (
    TIME_COLUMNS,
    is_step_name,
    may_be_suggested,
    read_steps,
    step_candidates,
    suggestion,
)
from backend.exchange.imports.log import Log
from backend.exchange.imports.names import MAX_PERCENT, Naming, choose_metric_names, is_accuracy
from backend.exchange.imports.table import MAX_SHOWN, BadLog, Floats, Ints, Table, excerpt
from backend.metrics.store import NAME_PATTERN

MAX_METRICS = 1_000
MAX_UNIX_TIME = 1e11
"""Upper limit of times in Unix time (in the year 5138); larger values are not times."""
INTERLEAVED = 4
"""Minimum rows per step decrease; with more frequent decreases, several processes wrote the rows."""
ROW_NUMBER = ""
"""Name used in place of a step column if rows are counted instead."""

State = Literal["taken", "renamed", "dropped"]

RUNTIME_COLUMN = "_runtime"
"""W&B's column of the seconds since the start of the run, which every row has."""
TIME_OF_A_VALUE = "_timestamp"
"""Suffix of columns with the times of another column's values, as SwanLab exports them."""

CLOCK_COLUMN = "time"
"""Time column in prime-rl's metrics.jsonl, whose small values are durations."""

Names = Mapping[str, str]
"""Metric name by column name."""


class Decision(NamedTuple):
    """The decision about a column."""

    column: str
    metric: str
    """Name of the metric in this service; empty for a column that is not imported."""
    state: State
    points: int
    reason: str
    suggestion: str = ""
    """Metric that the column's values resemble, if its name does not identify it."""
    hint: str = ""
    """Reason for the suggestion."""


class Restart(NamedTuple):
    """A position in the log where the step decreases."""

    line: int
    before: int
    after: int


class Placed(NamedTuple):
    """The steps and passes of the rows."""

    steps: Ints
    """Step of each row; -1 for a row without a step."""
    passes: Ints


class Series(NamedTuple):
    """The points of one metric: increasing steps with one value each."""

    steps: Ints
    values: Floats


@dataclass
class Plan:
    """The data that an import will store, with its report."""

    log: Log
    step: str
    """Column of steps, or ROW_NUMBER."""
    step_candidates: list[str]
    decisions: list[Decision] = field(default_factory=list)
    series: dict[str, Series] = field(default_factory=dict)
    restarts: list[Restart] = field(default_factory=list)
    restart_count: int = 0
    replaced: int = 0
    """Number of values that a later value of the same step replaces, such as after a resume."""
    merged: int = 0
    """Number of values that share their step with others and are averaged."""

    @property
    def points(self) -> int:
        """Number of values that are stored."""
        return sum(len(series.steps) for series in self.series.values())

    @property
    def last_step(self) -> int:
        """The largest step."""
        last_of_completions = self.log.completions.last_step if self.log.completions is not None else 0
        return max(last_of_completions, *(int(series.steps[-1]) for series in self.series.values()))

    @property
    def first_step(self) -> int:
        """The smallest step."""
        return min(int(series.steps[0]) for series in self.series.values())


def plan_import(log: Log, *, step: str | None = None, mapping: Names | None = None) -> Plan:
    """Decide which columns to import, and return the plan.

    `step` is the column of steps, or ROW_NUMBER to count the rows. `mapping` renames columns, and leaves out
    those with an empty name. Raise InvalidRequest if one of these is invalid, and BadLog if there is nothing
    to import.
    """
    table, mapping = log.table, dict(mapping or {})
    if not len(table):
        bad_lines = table.bad.first
        raise BadLog(
            f"has no rows; line {bad_lines[0].line} {bad_lines[0].reason}" if bad_lines else "has no rows"
        )
    candidates = [log.step] if log.step is not None and log.step in table.columns else step_candidates(table)
    step_column = (candidates[0] if candidates else ROW_NUMBER) if step is None else step
    _check_choice(table, step_column, mapping)
    plan = Plan(log, step_column, candidates)
    steps = read_steps(table, step_column or None)
    passes = _passes(steps)
    _note_rows(plan, steps)
    _read_times(log)
    metrics = {
        column: table.columns[column].numbers()[1]
        for column in table.columns
        if column != step_column and not _left_out(plan, column, mapping.get(column))
    }
    names = choose_metric_names(metrics, mapping)
    used_metrics = set[str]()
    for column in table.columns:
        if column != step_column:
            decision, series = _decide(
                plan, column, Placed(steps, passes), mapping.get(column), names, used_metrics
            )
            plan.decisions.append(decision)
            if series is not None:
                plan.series[decision.metric] = series
                used_metrics.add(decision.metric)
    if not plan.series:
        raise BadLog(_explain_no_metrics(plan))
    plan.decisions = _with_suggestions(plan, mapping)
    _note_columns(plan, is_guessed=step is None)
    plan.series |= {
        name: series for name, series in text_series(log.completions).items() if name not in used_metrics
    }
    if len(plan.series) > MAX_METRICS:
        raise BadLog(f"has {len(plan.series):,} metrics; at most {MAX_METRICS:,} are imported")
    return plan


def _with_suggestions(plan: Plan, mapping: Names) -> list[Decision]:
    """Return the decisions with suggested metrics that only one unknown column resembles and that the log
    lacks.
    """
    guesses = {
        decision.column: guess
        for decision in plan.decisions
        if decision.metric and decision.column not in mapping and find_metric(decision.metric) is None
        if may_be_suggested(decision.column)
        if (guess := suggestion(plan.series[decision.metric].values)) is not None
    }
    counts = Counter(guess.metric for guess in guesses.values())
    unambiguous_guesses = {
        column: guess
        for column, guess in guesses.items()
        if counts[guess.metric] == 1 and guess.metric not in plan.series
    }
    return [
        decision._replace(
            suggestion=unambiguous_guesses[decision.column].metric,
            hint=unambiguous_guesses[decision.column].reason,
        )
        if decision.column in unambiguous_guesses
        else decision
        for decision in plan.decisions
    ]


def text_series(completions: Completions | None) -> dict[str, Series]:
    """Return text/* of the completions, which are not columns of the log."""
    points: dict[str, list[tuple[int, float]]] = {}
    for step, metrics in (completions.text_metrics() if completions is not None else {}).items():
        for name, value in metrics.items():
            points.setdefault(name, []).append((step, value))
    return {
        name: Series(
            np.array([step for step, _ in step_values], np.int64),
            np.array([value for _, value in step_values]),
        )
        for name, step_values in points.items()
    }


def _check_choice(table: Table, step: str, mapping: Names) -> None:
    errors = []
    if step and step not in table.columns:
        errors.append(FieldError("step", f"there is no column {excerpt(step)}"))
    for column, name in mapping.items():
        if column not in table.columns:
            errors.append(FieldError("mapping", f"there is no column {excerpt(column)}"))
        elif name and not NAME_PATTERN.fullmatch(name):
            expected = "expected 1 to 128 letters, digits and _ . / @ -"
            errors.append(
                FieldError("mapping", f"{excerpt(column)} is to be called {excerpt(name)}; {expected}")
            )
    name_counts = Counter(name for name in mapping.values() if name)
    if repeated_name := next((name for name, count in name_counts.items() if count > 1), None):
        errors.append(FieldError("mapping", f"two columns are to be called {excerpt(repeated_name)}"))
    if errors:
        raise InvalidRequest(errors[:MAX_SHOWN])


def _note_rows(plan: Plan, steps: Ints) -> None:
    """Report the rows of metrics without a step, and the positions where the step decreases."""
    table = plan.log.table
    rows_without_step = np.flatnonzero((steps < 0) & _have_metrics(table))
    for row in rows_without_step[:MAX_SHOWN]:
        table.bad.add(table.lines[row], f"has no step in {excerpt(plan.step)}: expected a whole number")
    table.bad.count += max(0, len(rows_without_step) - MAX_SHOWN)
    rows = np.flatnonzero(steps >= 0)
    decreases = np.flatnonzero(np.diff(steps[rows]) < 0) + 1
    plan.restart_count = len(decreases)
    plan.restarts = [
        Restart(table.lines[rows[row]], int(steps[rows[row - 1]]), int(steps[rows[row]]))
        for row in decreases[:MAX_SHOWN]
    ]


def _have_metrics(table: Table) -> NDArray[np.bool_]:
    """Return a mask of the rows with values other than counters and times, which W&B writes."""
    has_metric = np.zeros(len(table), bool)
    for name, column in table.columns.items():
        if name.strip() and not (is_step_name(name) or name in TIME_COLUMNS or name == RUNTIME_COLUMN):
            has_metric[column.numbers()[0]] = True
    return has_metric


def _read_times(log: Log) -> None:
    metadata = log.metadata
    metadata.started_at, metadata.finished_at = (
        _possible(metadata.started_at),
        _possible(metadata.finished_at),
    )
    for name in (*TIME_COLUMNS, CLOCK_COLUMN):
        if name in log.table.columns:
            _, values = log.table.columns[name].numbers()
            times = values[np.isfinite(values) & (values > 1e8) & (values < MAX_UNIX_TIME)]
            if len(times):
                metadata.started_at = metadata.started_at or float(times.min())
                metadata.finished_at = metadata.finished_at or float(times.max())


def _possible(time: float | None) -> float | None:
    """Return a time if it is valid Unix time; a log may contain milliseconds or anything else."""
    return time if time is not None and 0 < time < MAX_UNIX_TIME else None


def _decide(
    plan: Plan,
    column: str,
    placed_rows: Placed,
    wanted_name: str | None,
    names: Mapping[str, Naming],
    used_names: Container[str],
) -> tuple[Decision, Series | None]:
    table_column = plan.log.table.columns[column]
    if reason := _left_out(plan, column, wanted_name):
        return Decision(column, "", "dropped", len(table_column.values), reason), None
    series, replaced_count, merged_count = _series(plan.log.table, column, placed_rows)
    if not len(series.steps):
        return Decision(column, "", "dropped", 0, "no row with a value has a step"), None
    name, reason = names[column]
    if name in used_names:
        reason = f"another column is already called {name}"
        return Decision(column, "", "dropped", len(series.steps), reason), None
    plan.replaced += replaced_count
    plan.merged += merged_count
    series = _fractions(plan, column, name, series)
    state: State = "taken" if name == column else "renamed"
    return Decision(column, name, state, len(series.steps), reason), series


def _fractions(plan: Plan, column: str, metric: str, series: Series) -> Series:
    """Return the series, converted to fractions if it is an accuracy in percent."""
    finite = series.values[np.isfinite(series.values)]
    if not is_accuracy(metric) or not len(finite) or finite.min() < 0 or not 1 < finite.max() <= MAX_PERCENT:
        return series
    plan.log.metadata.notes.append(
        f"{excerpt(column)} is in percent, up to {finite.max():.4g}: {metric} holds it as fractions."
    )
    return Series(series.steps, series.values / MAX_PERCENT)


def _left_out(plan: Plan, column: str, wanted_name: str | None) -> str:
    """Return the reason why a column is not a metric; empty if it is one."""
    table_column = plan.log.table.columns[column]
    if wanted_name == "":
        return "left out by you"
    if not column.strip():
        return "has no name"
    if not table_column.values:
        return f"holds no numbers, but {table_column.example}" if table_column.texts else "is empty"
    if wanted_name:
        return ""
    if table_column.texts > len(table_column.values):
        return f"holds mostly text, such as {table_column.example}"
    if is_step_name(column):
        return f"counts steps; they are taken from {plan.step}" if plan.step else "counts steps"
    if column in TIME_COLUMNS or (column == CLOCK_COLUMN and float(table_column.values[0]) > 1e8):
        return "is the time of day; the run's start and end are taken from it"
    if column.endswith(TIME_OF_A_VALUE) and column.removesuffix(TIME_OF_A_VALUE) in plan.log.table.columns:
        return "holds the times of another column's values"
    return ""


def _passes(steps: Ints) -> Ints:
    """Return the pass of each row; a later pass, such as after a resume, replaces steps of earlier ones.

    If the step decreases all the time, several processes wrote the rows, which then belong to one pass.
    """
    placed_rows = np.flatnonzero(steps >= 0)
    passes = np.zeros(len(steps), np.int64)
    is_back = np.diff(steps[placed_rows]) < 0
    if is_back.sum() * INTERLEAVED < len(placed_rows):
        passes[placed_rows[1:]] = np.cumsum(is_back)
    return passes


def _series(table: Table, column: str, placed_rows: Placed) -> tuple[Series, int, int]:
    """Return the value of each step, the number of replaced values, and the number of averaged values."""
    rows, values = table.columns[column].numbers()
    is_placed = placed_rows.steps[rows] >= 0
    rows, values = rows[is_placed], values[is_placed]
    steps = placed_rows.steps[rows]
    if (steps[1:] > steps[:-1]).all():
        return Series(steps, values), 0, 0
    passes = placed_rows.passes[rows]
    order = np.lexsort((np.arange(len(rows)), passes, steps))
    steps, passes, values = steps[order], passes[order], values[order]
    block_starts = np.flatnonzero(np.append(True, (np.diff(steps) != 0) | (np.diff(passes) != 0)))
    sizes = np.diff(np.append(block_starts, len(steps)))
    is_last = np.append(np.diff(steps[block_starts]) != 0, True)
    with np.errstate(invalid="ignore", over="ignore"):
        means = np.where(sizes > 1, np.add.reduceat(values, block_starts) / sizes, values[block_starts])
    is_different = np.fmax.reduceat(values, block_starts) != np.fmin.reduceat(values, block_starts)
    means = np.where(is_different, means, values[block_starts])
    merged_count = int(sizes[is_last & (sizes > 1) & is_different].sum())
    return Series(steps[block_starts[is_last]], means[is_last]), int(sizes[~is_last].sum()), merged_count


def _note_columns(plan: Plan, *, is_guessed: bool) -> None:
    """Add sentences about unexpected properties of the columns and steps to the report."""
    notes = plan.log.metadata.notes
    if is_guessed and plan.step == ROW_NUMBER and len(plan.log.table) > 1:
        notes.append("No column counts the steps: the rows are counted in their order, from 1.")
    if plan.merged:
        notes.append(f"{plan.merged:,} values share their step with others of their column: the mean counts.")
    for decision in plan.decisions:
        if decision.metric and np.isnan(plan.series[decision.metric].values).all():
            notes.append(f"{excerpt(decision.column)} is never a number: it is NaN in every row.")
    duplicates = [decision for decision in plan.decisions if decision.reason.partition(" is already ")[1]]
    notes += [f"{excerpt(decision.column)}: {decision.reason}." for decision in duplicates[:MAX_SHOWN]]


def _explain_no_metrics(plan: Plan) -> str:
    reasons = [f"{excerpt(decision.column)} {decision.reason}" for decision in plan.decisions[:3]]
    return f"has no metric: {'; '.join(reasons)}" if reasons else "has no columns beside the steps"
