"""Metric points out of SQL: of each step the newest attempt's value, hidden rows left out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.metrics.attempts import counts, limits_of
from backend.metrics.series import Curve, Floats, Ints
from backend.metrics.store import find_keys
from backend.metrics.values import from_stored
from backend.models import Metric, MetricKey

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
    """The valid points of each (run, metric) that has any."""
    keys = find_keys(session, metrics)
    limits = limits_of(session, runs) if keys else {}
    columns = select(Metric.step, Metric.kind, Metric.value).order_by(Metric.step, Metric.attempt)
    connection = session.connection()
    found = {}
    for run in runs:
        valid = columns.where(Metric.run_id == run, counts(Metric, limits.get(run, ())))
        for name, key in keys.items():
            # Straight from the driver: half a million rows as SQLAlchemy's own take seconds.
            cursor: Any = connection.execute(valid.where(Metric.key_id == key)).cursor
            if rows := cursor.fetchall():
                found[run, name] = _points(rows)
    return found


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


def metric_names(session: Session, run_id: str) -> list[str]:
    """Names of all metrics of a run, sorted."""
    keys = select(Metric.key_id).where(Metric.run_id == run_id).distinct()
    return list(
        session.scalars(select(MetricKey.name).where(MetricKey.id.in_(keys)).order_by(MetricKey.name))
    )


def all_rows(session: Session, run_id: str, *, all_attempts: bool = True) -> Sequence[Any]:
    """(step, attempt, name, kind, value) of every row of a run, or of those that count, in that order."""
    limits = () if all_attempts else limits_of(session, [run_id]).get(run_id, ())
    query = (
        select(Metric.step, Metric.attempt, MetricKey.name, Metric.kind, Metric.value)
        .join(MetricKey, MetricKey.id == Metric.key_id)
        .where(Metric.run_id == run_id, counts(Metric, limits))
        .order_by(Metric.step, Metric.attempt, MetricKey.name)
    )
    return session.execute(query).all()
