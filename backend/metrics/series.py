"""Curves of one metric, their smoothing and their window. Pure numpy, without SQL and HTTP."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 128


@dataclass(frozen=True, slots=True)
class Points:
    """The raw points of one metric of one run."""

    steps: Ints
    values: Floats
    weights: Ints | None = None
    """As a curve's."""

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
    """(N,) for how many points each stands, in an outline; None where these are all points."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def raw_points(self) -> int:
        """The number of points, shown or not."""
        return len(self) if self.weights is None else int(self.weights.sum())

    def at(self, index: NDArray[np.bool_] | Ints | slice) -> "Curve":
        """Only those points."""
        weights = None if self.weights is None else self.weights[index]
        return Curve(self.steps[index], self.x[index], self.values[index], weights)


def ema(values: Floats, smoothing: float) -> Floats:
    """Exponential moving average, debiased: the k-th finite value counts with weight (1-s) s^(n-k) / (1-s^n).

    NaN and infinities stay where they are and do not enter; a constant curve and smoothing 0 change nothing.
    Source: TensorBoard, line_chart_v2/data_transformer.ts.
    """
    if smoothing <= 0:
        return values
    finite = np.isfinite(values)
    known = values[finite]
    if len(known) < 2 or np.all(known == known[0]):
        return values
    smooth = values.copy()
    weight = 1.0 - smoothing ** np.arange(1, len(known) + 1)
    smooth[finite] = _recursive_mean(known, smoothing) / weight
    return smooth


def _recursive_mean(values: Floats, s: float) -> Floats:
    """y[k] = s y[k-1] + (1-s) values[k], y[-1] = 0; block by block, as one matrix product each."""
    n = len(values)
    padded = np.zeros(-(-n // BLOCK) * BLOCK)
    padded[:n] = values
    kernel, decay = _kernel(s)
    within = padded.reshape(-1, BLOCK) @ kernel.T
    carried = np.zeros(len(within))
    for block in range(1, len(within)):
        carried[block] = within[block - 1, -1] + decay[-1] * carried[block - 1]
    return (within + carried[:, None] * decay).reshape(-1)[:n]


@lru_cache(maxsize=8)
def _kernel(s: float) -> tuple[Floats, Floats]:
    """The weights within a block, (BLOCK, BLOCK), and of what came before it, (BLOCK,)."""
    lag = np.arange(BLOCK)[:, None] - np.arange(BLOCK)[None, :]
    kernel: Floats = np.where(lag >= 0, (1.0 - s) * s ** np.maximum(lag, 0), 0.0)
    return kernel, np.power(s, np.arange(1, BLOCK + 1), dtype=np.float64)


def window(curve: Curve, x_min: float | None, x_max: float | None) -> NDArray[np.bool_]:
    """A mask of the points with x_min <= x <= x_max."""
    low = -np.inf if x_min is None else x_min
    high = np.inf if x_max is None else x_max
    return (curve.x >= low) & (curve.x <= high)
