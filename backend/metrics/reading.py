"""Metric points out of SQL: of each step the newest attempt's value, hidden rows left out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Row, and_, select
from sqlalchemy.orm import Session

from backend.metrics.attempts import Limit, counts, limits_of
from backend.metrics.lineage import ALL_STEPS, Stretch, lineages
from backend.metrics.series import Curve, Floats, Ints
from backend.metrics.store import find_keys
from backend.metrics.values import from_stored
from backend.models import Metric, MetricKey

StoredRow = Row[int, int, str, int, float | None]
"""step, attempt, name, kind, value."""

_ROWS = (
    select(Metric.step, Metric.attempt, MetricKey.name, Metric.kind, Metric.value)
    .join(MetricKey, MetricKey.id == Metric.key_id)
    .order_by(Metric.step, Metric.attempt, MetricKey.name)
)

X_METRICS = {"wall": "time/wall_seconds", "tokens": "tokens/total"}
"""What the x axis is read from, beside the step itself."""


@dataclass(frozen=True, slots=True)
class Points:
    """The raw points of one metric of one run."""

    steps: Ints
    values: Floats

    def __len__(self) -> int:
        return len(self.steps)


def read_points(
    session: Session, runs: Sequence[str], metrics: Sequence[str]
) -> dict[tuple[str, str], Points]:
    """The valid points of each (run, metric) that has any; a fork's begin with those it inherited."""
    keys = find_keys(session, metrics)
    stretches = lineages(session, runs) if keys else {}
    limits = limits_of(session, {part.run for parts in stretches.values() for part in parts})
    columns = select(Metric.step, Metric.kind, Metric.value).order_by(Metric.step, Metric.attempt)
    connection = session.connection()
    found = {}
    for run, parts in stretches.items():
        valid = [columns.where(_belongs(part, limits.get(part.run, ()))) for part in parts]
        for name, key in keys.items():
            rows: list[Any] = []
            for query in valid:
                # Straight from the driver: half a million rows as SQLAlchemy's own take seconds.
                cursor: Any = connection.execute(query.where(Metric.key_id == key)).cursor
                rows += cursor.fetchall()
            if rows:
                found[run, name] = _points(rows)
    return found


def _belongs(part: Stretch, limits: Sequence[Limit]) -> ColumnElement[bool]:
    """SQL condition: a point of this stretch that counts."""
    own = and_(Metric.run_id == part.run, counts(Metric, limits))
    return own if part.last_step == ALL_STEPS else and_(own, Metric.step <= part.last_step)


def _points(rows: Sequence[Any]) -> Points:
    steps, kinds, values = (np.array(column) for column in zip(*rows, strict=True))
    values = values.astype(np.float64)  # NULL becomes NaN
    if kinds.any():
        values = from_stored(kinds, values)
    # Of two attempts at one step the later row, which is the newer attempt's, counts.
    is_last = np.append(steps[1:] != steps[:-1], True)
    return Points(steps[is_last], values[is_last])


def read_curves(
    session: Session, runs: Sequence[str], metrics: Sequence[str], x: str
) -> dict[tuple[str, str], Curve]:
    """The curves of each (run, metric) over steps, training seconds or tokens.

    A point whose step has no time or no token count (yet) is left out there.
    """
    axis = X_METRICS.get(x)
    points = read_points(session, runs, [*metrics, axis] if axis else metrics)
    curves = {}
    for run in runs:
        along = points.get((run, axis)) if axis else None
        for metric in metrics:
            if (found := points.get((run, metric))) is not None:
                curve = (
                    _along(found, along)
                    if axis
                    else Curve(found.steps, found.steps.astype(float), found.values)
                )
                if len(curve):
                    curves[run, metric] = curve
    return curves


def _along(points: Points, axis: Points | None) -> Curve:
    if axis is None:
        nothing = np.empty(0)
        return Curve(np.empty(0, np.int64), nothing, nothing)
    place = np.clip(np.searchsorted(axis.steps, points.steps), 0, len(axis.steps) - 1)
    has_x = (axis.steps[place] == points.steps) & np.isfinite(axis.values[place])
    return Curve(points.steps[has_x], axis.values[place][has_x], points.values[has_x])


def all_rows(session: Session, run_id: str) -> Iterator[StoredRow]:
    """(step, attempt, name, kind, value) of every row of a run, hidden ones too, in that order."""
    yield from session.execute(_ROWS.where(Metric.run_id == run_id))


def valid_rows(session: Session, run_id: str, *, up_to: int = ALL_STEPS) -> Iterator[StoredRow]:
    """The same of the rows that count, up to a step; a fork's begin with those it inherited."""
    parts = lineages(session, [run_id])[run_id]
    limits = limits_of(session, [part.run for part in parts])
    for part in parts:
        belongs = _belongs(part, limits.get(part.run, ()))
        yield from session.execute(_ROWS.where(belongs, Metric.step <= up_to))
