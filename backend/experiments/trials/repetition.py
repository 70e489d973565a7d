"""Compare a run with its repetition, metric by metric and bit by bit."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from sqlalchemy.orm import Session

from backend.config.metrics import MACHINE_PREFIXES
from backend.metrics.reading import read_points
from backend.metrics.series import Points
from backend.storage.models import Run

EVALUATION_PREFIX = "eval/"
"""Prefix of metrics of evaluations, which also happen at the last step of a run, wherever it is."""


class Difference(NamedTuple):
    """The first step at which two runs differ, and a metric that differs there."""

    step: int
    metric: str


def first_difference(session: Session, run: Run, repeated_run: Run, *, after_step: int) -> Difference | None:
    """Return the first difference after a step, up to the last common step; None if the runs are equal."""
    names = sorted(
        name
        for name in {*run.summary.get("last", {}), *repeated_run.summary.get("last", {})}
        if not name.startswith(MACHINE_PREFIXES)
    )
    last = min(run.last_step, repeated_run.last_step)
    points = read_points(session, [run.id, repeated_run.id], names)
    differences = [
        Difference(step, name)
        for name in names
        if (step := _first_difference(points, run.id, repeated_run.id, name, after_step, last)) is not None
    ]
    return min(differences, default=None)


def _first_difference(
    points: Mapping[tuple[str, str], Points], first: str, second: str, name: str, after_step: int, last: int
) -> int | None:
    first_values, second_values = (
        _bytes_by_step(points.get((run, name)), after_step, last) for run in (first, second)
    )
    steps = (
        first_values.keys() & second_values.keys()
        if name.startswith(EVALUATION_PREFIX)
        else first_values.keys() | second_values.keys()
    )
    return next((step for step in sorted(steps) if first_values.get(step) != second_values.get(step)), None)


def _bytes_by_step(points: Points | None, after_step: int, last: int) -> dict[int, bytes]:
    """Return the bytes of each value by step, so that NaN equals NaN, and 0 does not equal -0."""
    if points is None:
        return {}
    is_in_range = (points.steps > after_step) & (points.steps <= last)
    return {
        int(step): np.float64(value).tobytes()
        for step, value in zip(points.steps[is_in_range], points.values[is_in_range], strict=True)
    }
