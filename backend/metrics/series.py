"""Curves of a metric with smoothing and windows, in pure numpy without SQL and HTTP."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NEGLIGIBLE_WEIGHT = 1e-20
"""Weight below which a term does not change a float64 sum."""


@dataclass(frozen=True, slots=True)
class Points:
    """The points of one metric of a run."""

    steps: Ints
    values: Floats
    weights: Ints | None = None
    """Number of original points that each point represents, as in `Curve`."""

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one metric with positions on an axis, in the order of steps."""

    steps: Ints
    """Increasing steps, of shape (N,)."""
    x: Floats
    """Positions on an axis of metrics/axes.py, of shape (N,)."""
    values: Floats
    """Values, of shape (N,), which may be NaN or infinite."""
    weights: Ints | None = None
    """Number of original points that each point represents, of shape (N,), or None if none were left out."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def raw_points(self) -> int:
        """Number of original points."""
        return len(self) if self.weights is None else int(self.weights.sum())

    def select(self, index: NDArray[np.bool_] | Ints | slice) -> "Curve":
        """Return the points at these indices."""
        if isinstance(index, slice) and index == slice(None):
            return self
        weights = None if self.weights is None else self.weights[index]
        return Curve(self.steps[index], self.x[index], self.values[index], weights)


def exponential_mean(values: Floats, smoothing: float) -> Floats:
    """Return the debiased exponential moving average, with weights (1-s) s^(n-k) / (1-s^n) of the finite
    values.

    NaN and infinities are left in place and not averaged. Constant curves and smoothing 0 do not change
    values. Source: TensorBoard, line_chart_v2/data_transformer.ts.
    """
    if smoothing <= 0:
        return values
    finite = np.isfinite(values)
    finite_values = values[finite]
    if len(finite_values) < 2 or np.all(finite_values == finite_values[0]):
        return values
    mean = _recursive_mean(finite_values, smoothing)
    biased_count = min(len(finite_values), math.ceil(math.log(NEGLIGIBLE_WEIGHT) / math.log(smoothing)))
    mean[:biased_count] /= 1.0 - smoothing ** np.arange(1, biased_count + 1)
    smooth_values = values.copy()
    smooth_values[finite] = mean
    return smooth_values


def _recursive_mean(values: Floats, s: float) -> Floats:
    """Return y[k] = s y[k-1] + (1-s) values[k] with y[-1] = 0, by weighted
    sums of the last 2, 4, 8, ... values.
    """
    sums = (1.0 - s) * values
    reach, decay = 1, s
    while reach < len(sums) and decay > NEGLIGIBLE_WEIGHT:
        sums[reach:] += decay * sums[:-reach]
        reach, decay = 2 * reach, decay * decay
    return sums


def window_mask(curve: Curve, x_min: float | None, x_max: float | None) -> NDArray[np.bool_]:
    """Return a mask of the points with x_min <= x <= x_max."""
    low = -np.inf if x_min is None else x_min
    high = np.inf if x_max is None else x_max
    return (curve.x >= low) & (curve.x <= high)
