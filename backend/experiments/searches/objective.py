"""The objective of a search: pure functions that compute a run's values for the pruner and the sampler."""

import math

import numpy as np

from backend.experiments.search_settings import SearchSettings
from backend.metrics.series import Points

MEAN_STEPS = 10
"""Number of steps over which a training metric is averaged; evaluations are not averaged."""
MAX_REPORTS = 100
"""Maximum number of values of a run if the objective is a training metric."""
LAST = 3

Reports = dict[int, float]
"""Values of a run by the step at which they were reached, in order; NaN if a value is not finite."""


def make_reports(points: Points | None, settings: SearchSettings, steps: int) -> Reports:
    """Return the values of a run with `steps` steps: one per evaluation, or per ten steps of a training
    metric.

    The last one is the value of the run. The evaluation before the first step is ignored.
    """
    if points is None:
        return {}
    reports = _evaluations(points) if settings.metric.startswith("eval/") else _means(points, steps)
    values = [value for _, value in reports]
    return {step: _read_value(values[: index + 1], settings) for index, (step, _) in enumerate(reports)}


def final_value(reports: Reports) -> float | None:
    """Return the last value of a run; None if there is none or it is not finite."""
    last = next(reversed(reports.values()), math.nan)
    return last if math.isfinite(last) else None


def _evaluations(points: Points) -> list[tuple[int, float]]:
    return [
        (step, value)
        for step, value in zip(points.steps.tolist(), points.values.tolist(), strict=True)
        if step
    ]


def _means(points: Points, steps: int) -> list[tuple[int, float]]:
    """Return means over ten steps, at regular steps that are the same in all runs, and at the end."""
    interval = max(MEAN_STEPS, math.ceil(steps / MAX_REPORTS))
    last = int(points.steps[-1])
    means = []
    for step in [*range(interval, last, interval), last]:
        inside = points.values[(points.steps > step - MEAN_STEPS) & (points.steps <= step)]
        if step and len(inside):
            with np.errstate(all="ignore"):
                means.append((step, float(inside.mean())))
    return means


def _read_value(values: list[float], settings: SearchSettings) -> float:
    match settings.reading:
        case "final":
            value = values[-1]
        case "best":
            finite = [value_ for value_ in values if math.isfinite(value_)] or [math.nan]
            value = max(finite) if settings.maximizes else min(finite)
        case "mean_of_3":
            value = (
                math.fsum(values[-LAST:]) / len(values[-LAST:]) if _all_finite(values[-LAST:]) else math.nan
            )
    return value if math.isfinite(value) else math.nan


def _all_finite(values: list[float]) -> bool:
    return all(math.isfinite(value) for value in values)
