"""Metric points out of SQL: of each step the newest attempt's value, hidden rows left out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.database import is_postgres
from backend.metrics.series import Curve, Floats, Ints, valid_rows
from backend.metrics.store import find_keys
from backend.metrics.values import from_stored
from backend.models import NOT_BEGUN, Attempt, Metric, MetricKey

Limits = Mapping[str, Sequence[tuple[int, int]]]
"""For each run: (attempt, last step of it that counts), for attempts that another one continued."""

X_METRICS = {"wall": "time/wall_seconds", "tokens": "tokens/total"}
"""What the x axis is read from, beside the step itself."""

_POINTS = """
SELECT step, attempt, kind, value FROM metric WHERE run_id = {0} AND key_id = {0} ORDER BY step, attempt
"""


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
    limits = attempt_limits(session, runs) if keys else {}
    # Straight from the driver: half a million rows through the ORM's result take seconds.
    query = _POINTS.format("%s" if is_postgres(session) else "?")
    connection = session.connection()
    found = {}
    for run in runs:
        for name, key in keys.items():
            rows = connection.exec_driver_sql(query, (run, key)).cursor.fetchall()
            if rows and len(points := _points(rows, limits.get(run, ()))):
                found[run, name] = points
    return found


def _points(rows: Sequence[Any], limits: Sequence[tuple[int, int]]) -> Points:
    steps, attempts, kinds, values = (np.array(column) for column in zip(*rows, strict=True))
    values = values.astype(np.float64)  # NULL becomes NaN
    if kinds.any():
        values = from_stored(kinds, values)
    if len(limits):
        is_valid = valid_rows(steps, attempts, limits)
        steps, values = steps[is_valid], values[is_valid]
    # Of two attempts at one step the later row, which is the newer attempt's, counts.
    is_last = np.append(steps[1:] != steps[:-1], len(steps) > 0)[: len(steps)]
    return Points(steps[is_last], values[is_last])


def attempt_limits(session: Session, runs: Iterable[str]) -> dict[str, list[tuple[int, int]]]:
    """How far the rows of each attempt count: up to the step from which any later attempt continued."""
    query = (
        select(Attempt.run_id, Attempt.number, Attempt.from_step)
        .where(Attempt.run_id.in_(list(runs)))
        .order_by(Attempt.run_id, Attempt.number.desc())
    )
    limits: dict[str, list[tuple[int, int]]] = {}
    lowest: dict[str, int] = {}
    for run_id, number, from_step in session.execute(query):
        last = lowest.get(run_id, NOT_BEGUN)
        if last < NOT_BEGUN:
            limits.setdefault(run_id, []).append((number, last))
        lowest[run_id] = min(last, from_step)
    return limits


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


def all_rows(session: Session, run_id: str) -> Sequence[Any]:
    """(step, attempt, name, kind, value) of every row of a run, by step, attempt, name."""
    query = (
        select(Metric.step, Metric.attempt, MetricKey.name, Metric.kind, Metric.value)
        .join(MetricKey, MetricKey.id == Metric.key_id)
        .where(Metric.run_id == run_id)
        .order_by(Metric.step, Metric.attempt, MetricKey.name)
    )
    return session.execute(query).all()
