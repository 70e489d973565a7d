"""Noise of a series, and the trailing mean that its noise asks for."""

import math

import numpy as np

from backend.analysis.diagnosis.log import Floats

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation of a normal distribution to its standard deviation."""

MAX_JUMPS = 2
"""Differences that are no noise: the goal may rise once and fall once."""


def noise(values: Floats) -> float:
    """Return the standard deviation from step to step; a trend and the two largest jumps hardly count.

    The mean of squares, not the median: the median of a sparse reward's differences is 0.
    """
    if len(values) < 3:
        return 0.0
    squares = np.sort(np.diff(values) ** 2)
    return math.sqrt(float(np.mean(squares[: max(2, len(squares) - MAX_JUMPS)])) / 2)


def window_for(sigma: float, *, scale: float, count: int) -> int:
    """Points of a mean whose standard error is a twentieth of `scale`: 3 to an eighth of all."""
    ratio = 20 * sigma / scale if scale > 0 else 0.0
    points = math.ceil(ratio**2) if ratio < 1e6 else count  # NaN if differences overflow
    return int(np.clip(points, 3, max(3, count // 8)))


def trailing_mean(values: Floats, window: int) -> Floats:
    """(N,) mean of the last `window` values at each place, of fewer at the beginning."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - window)
    means: Floats = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def running_median(values: Floats, window: int) -> Floats:
    """(N,) median of the last `window` values at each place, of fewer at the beginning."""
    starting = [np.median(values[:end]) for end in range(1, min(window, len(values) + 1))]
    if len(values) < window:
        return np.array(starting)
    medians = np.median(np.lib.stride_tricks.sliding_window_view(values, window), axis=1)
    return np.concatenate([starting, medians])


def luck_of_best(windows: float) -> float:
    """Standard errors by which the best of so many windows of equal worth exceeds their mean, about."""
    return math.sqrt(2 * math.log(max(windows, 1.0)))
