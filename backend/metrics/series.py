"""Curves of one metric, their smoothing and their window. Pure numpy, without SQL and HTTP."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NEGLIGIBLE = 1e-20
"""A weight that no longer changes a sum of float64."""


@dataclass(frozen=True, slots=True)
class Points:
    """The raw points of one metric of one run."""

    steps: Ints
    values: Floats
    weights: Ints | None = None
    """The weights of the points, like a curve's."""

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one metric in order of their steps."""

    steps: Ints
    """(N,) increasing."""
    x: Floats
    """(N,) position on an axis of metrics/axes.py."""
    values: Floats
    """(N,) may hold NaN and infinities."""
    weights: Ints | None = None
    """(N,) number of points that each point of an outline represents; None if these are all points."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def raw_points(self) -> int:
        """The number of points, shown or not."""
        return len(self) if self.weights is None else int(self.weights.sum())

    def at(self, index: NDArray[np.bool_] | Ints | slice) -> "Curve":
        """Return the points at these places."""
        if isinstance(index, slice) and index == slice(None):
            return self
        weights = None if self.weights is None else self.weights[index]
        return Curve(self.steps[index], self.x[index], self.values[index], weights)


def exponential_mean(values: Floats, smoothing: float) -> Floats:
    """Exponential moving average, debiased: the k-th finite value counts with weight (1-s) s^(n-k) / (1-s^n).

    NaN and infinities stay where they are and do not enter; a constant curve and smoothing 0 change nothing.
    Source: TensorBoard, line_chart_v2/data_transformer.ts.
    """
    if smoothing <= 0:
        return values
    finite = np.isfinite(values)
    finite_values = values[finite]
    if len(finite_values) < 2 or np.all(finite_values == finite_values[0]):
        return values
    mean = _recursive_mean(finite_values, smoothing)
    young = min(len(finite_values), math.ceil(math.log(NEGLIGIBLE) / math.log(smoothing)))
    mean[:young] /= 1.0 - smoothing ** np.arange(1, young + 1)
    smooth = values.copy()
    smooth[finite] = mean
    return smooth


def _recursive_mean(values: Floats, s: float) -> Floats:
    """y[k] = s y[k-1] + (1-s) values[k], y[-1] = 0; the weighted sums of the last 2, 4, 8, ... values."""
    sums = (1.0 - s) * values
    reach, decay = 1, s
    while reach < len(sums) and decay > NEGLIGIBLE:
        sums[reach:] += decay * sums[:-reach]
        reach, decay = 2 * reach, decay * decay
    return sums


def window_mask(curve: Curve, x_min: float | None, x_max: float | None) -> NDArray[np.bool_]:
    """Return a mask of the points with x_min <= x <= x_max."""
    low = -np.inf if x_min is None else x_min
    high = np.inf if x_max is None else x_max
    return (curve.x >= low) & (curve.x <= high)
