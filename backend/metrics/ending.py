"""The end of a curve as one number: the same in charts, tables and the matrix. Pure."""

from collections.abc import Sequence

import numpy as np

from backend.metrics.series import Curve, Floats
from backend.metrics.statistics import spread

LAST_STEPS = 10
"""Steps over which a metric of training is averaged; of an evaluation the last one counts."""


def is_evaluation(metric: str) -> bool:
    """Return whether a metric is measured by evaluations."""
    return metric.startswith("eval/")


def curve_end(metric: str, curve: Curve) -> float | None:
    """Return the mean of the curve's last 10 steps, or the last evaluation; NaN if one is not finite."""
    if not len(curve):
        return None
    if is_evaluation(metric):
        return float(curve.values[-1])
    return mean_or_nan(curve.values[curve.steps > curve.steps[-1] - LAST_STEPS])


def mean_end(metric: str, curves: Sequence[Curve]) -> dict[str, float | int | None]:
    """Return the mean end of some curves, with its 95 % interval, as `schemas.End`."""
    ends = [end for curve in curves if (end := curve_end(metric, curve)) is not None]
    over_runs = spread(ends)
    return {"n": over_runs.n, "mean": over_runs.mean, "low": over_runs.low, "high": over_runs.high}


def mean_or_nan(values: Floats) -> float:
    """Return the mean; NaN if it is not finite."""
    with np.errstate(all="ignore"):
        return finite_or_nan(float(np.mean(values)))


def finite_or_nan(value: float) -> float:
    """Return the value; NaN if it is not finite."""
    return value if np.isfinite(value) else float("nan")
