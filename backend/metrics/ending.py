"""Compute the end of a curve as one number, in the same way for charts, tables and the matrix."""

from collections.abc import Sequence

import numpy as np

from backend.metrics.series import Curve, Floats
from backend.metrics.statistics import spread

LAST_STEPS = 10
"""Number of steps over which a training metric is averaged. For an evaluation, only the last one counts."""


def is_evaluation(metric: str) -> bool:
    """Return whether a metric is measured by evaluations."""
    return metric.startswith("eval/")


def curve_end(metric: str, curve: Curve) -> float | None:
    """Return the mean of the last 10 steps, or the last evaluation.

    Return None for an empty curve, and NaN if a training value is not finite.
    """
    if not len(curve):
        return None
    if is_evaluation(metric):
        return float(curve.values[-1])
    return mean_or_nan(curve.values[curve.steps > curve.steps[-1] - LAST_STEPS])


def mean_end(metric: str, curves: Sequence[Curve]) -> dict[str, float | int | None]:
    """Return the mean of the ends of several curves with its 95 %
    interval, as the fields of `schemas.End`.
    """
    end_values = [end for curve in curves if (end := curve_end(metric, curve)) is not None]
    ends_spread = spread(end_values)
    return {"n": ends_spread.n, "mean": ends_spread.mean, "low": ends_spread.low, "high": ends_spread.high}


def mean_or_nan(values: Floats) -> float:
    """Return the mean, or NaN if it is not finite."""
    with np.errstate(all="ignore"):
        return finite_or_nan(float(np.mean(values)))


def finite_or_nan(value: float) -> float:
    """Return the value, or NaN if it is not finite."""
    return value if np.isfinite(value) else float("nan")
