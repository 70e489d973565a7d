"""Reduce a curve to one number per run: its end, its best, at equal tokens, its area, or when it reaches a
threshold.

All functions are pure. They return NaN if the value is not finite, and None if there is no value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from backend.config.metrics import Better
from backend.metrics.ending import LAST_STEPS, finite_or_nan
from backend.metrics.series import Curve, Floats

Reading = Literal["final", "best", "equal_tokens", "auc", "steps_to", "tokens_to", "seconds_to"]
READINGS: tuple[str, ...] = get_args(Reading)
THRESHOLDS = ("steps_to", "tokens_to", "seconds_to")
"""Readings that need a threshold; a lower value is better, regardless of the metric's direction."""

SPARKLINE_POINTS = 40


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the matrix: a metric and a reading of it."""

    metric: str
    reading: str
    threshold: float | None = None

    @property
    def key(self) -> str:
        """Name of the column in URLs, such as `eval/accuracy:steps_to:0.5`."""
        end = "" if self.threshold is None else f":{repr(self.threshold).removesuffix('.0')}"
        return f"{self.metric}:{self.reading}{end}"

    def better_direction(self, direction: Better) -> Better:
        """Return the direction in which the number improves."""
        return "down" if self.reading in THRESHOLDS else direction


def best_value(curve: Curve, direction: Better) -> float | None:
    """Return the best finite value; None if the metric has no direction or no finite value."""
    finite = curve.values[np.isfinite(curve.values)]
    if not len(finite) or not direction:
        return None
    return float(finite.max() if direction == "up" else finite.min())


def cut_at(curve: Curve, x: Floats, limit: float) -> Curve:
    """Return the points of a curve whose position in `x` (N,) is at most `limit`."""
    return curve.select(x <= limit)


def mean_height(curve: Curve, last_step: int) -> float | None:
    """Return the mean height of the curve up to a step: its area by trapezoids divided by its width.

    Return NaN if a value is not finite, and None if there are no points.
    """
    curve = curve.select(curve.steps <= last_step)
    if not len(curve):
        return None
    if len(curve) == 1:
        return float(curve.values[0])
    x = curve.steps.astype(float)
    with np.errstate(all="ignore"):
        return finite_or_nan(float(np.trapezoid(curve.values, x) / (x[-1] - x[0])))


def threshold_position(
    curve: Curve, x: Floats, threshold: float, direction: Better, *, is_evaluation: bool
) -> float | None:
    """Return the position in `x` at which the curve first reaches a threshold; None if it never does.

    A training metric reaches it with the mean of its last 10 points, because single steps are noisy.
    """
    values = curve.values if is_evaluation else _running_mean(curve.values)
    reached_indices = np.flatnonzero(values <= threshold if direction == "down" else values >= threshold)
    return float(x[reached_indices[0]]) if len(reached_indices) else None


def sparkline(curves: Sequence[Curve]) -> list[float | None]:
    """Return the mean curve as at most 40 values, evenly spaced over the steps; None for gaps."""
    curves = [curve.select(np.isfinite(curve.values)) for curve in curves]
    curves = [curve for curve in curves if len(curve)]
    if not curves:
        return []
    first = min(int(curve.steps[0]) for curve in curves)
    last = max(int(curve.steps[-1]) for curve in curves)
    grid = np.linspace(first, last, min(SPARKLINE_POINTS, last - first + 1))
    lines = np.stack(
        [np.interp(grid, curve_.steps, curve_.values, left=np.nan, right=np.nan) for curve_ in curves]
    )
    count = np.count_nonzero(~np.isnan(lines), axis=0)
    mean = np.nansum(lines, axis=0) / np.maximum(count, 1)
    return [float(value) if n else None for value, n in zip(mean, count, strict=True)]


def _running_mean(values: Floats) -> Floats:
    """Return the mean of the last 10 points; NaN before the tenth point and near non-finite values."""
    means = np.full(len(values), np.nan)
    if len(values) >= LAST_STEPS:
        windows = np.lib.stride_tricks.sliding_window_view(values, LAST_STEPS)
        with np.errstate(all="ignore"):
            means[LAST_STEPS - 1 :] = windows.mean(axis=1)
    return means
