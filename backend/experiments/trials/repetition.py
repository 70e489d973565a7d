"""Comparison of a run with its repetition, metric by metric, to the last bit."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from sqlalchemy.orm import Session

from backend.config.metrics import OF_THE_MACHINE
from backend.metrics.reading import read_points
from backend.metrics.series import Points
from backend.storage.models import Run

EVALUATED = "eval/"
"""Metrics of evaluations: the last step of a run is evaluated, wherever it is."""


class Difference(NamedTuple):
    """The first step at which two runs differ, and a metric that differs there."""

    step: int
    metric: str


def first_difference(session: Session, run: Run, again: Run, *, after: int) -> Difference | None:
    """Return the first difference behind a step, up to the last step of both; None if they are equal."""
    names = sorted(
        name
        for name in {*run.summary.get("last", {}), *again.summary.get("last", {})}
        if not name.startswith(OF_THE_MACHINE)
    )
    last = min(run.last_step, again.last_step)
    points = read_points(session, [run.id, again.id], names)
    differences = [
        Difference(step, name)
        for name in names
        if (step := _first_difference(points, run.id, again.id, name, after, last)) is not None
    ]
    return min(differences, default=None)


def _first_difference(
    points: Mapping[tuple[str, str], Points], first: str, second: str, name: str, after: int, last: int
) -> int | None:
    ours, theirs = (_bytes_by_step(points.get((run, name)), after, last) for run in (first, second))
    steps = ours.keys() & theirs.keys() if name.startswith(EVALUATED) else ours.keys() | theirs.keys()
    return next((step for step in sorted(steps) if ours.get(step) != theirs.get(step)), None)


def _bytes_by_step(points: Points | None, after: int, last: int) -> dict[int, bytes]:
    """Return the bits of each value: NaN equals NaN, and 0 is not -0."""
    if points is None:
        return {}
    chosen = (points.steps > after) & (points.steps <= last)
    return {
        int(step): np.float64(value).tobytes()
        for step, value in zip(points.steps[chosen], points.values[chosen], strict=True)
    }
