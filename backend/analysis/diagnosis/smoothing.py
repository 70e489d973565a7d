"""Estimate the noise of a series, and smooth it accordingly."""

import math

import numpy as np

from backend.analysis.diagnosis.log import Floats

MAD_TO_SIGMA = 1.4826
"""Ratio of the standard deviation of a normal distribution to its median absolute deviation."""

MAX_JUMPS = 2
"""Number of largest differences that do not count as noise, because the goal may rise once and fall once."""


def noise(values: Floats) -> float:
    """Return the step-to-step standard deviation, on which trends and the two largest jumps have little
    effect.

    It uses the mean of squares, because the median of the differences of a sparse reward is 0.
    """
    if len(values) < 3:
        return 0.0
    squares = np.sort(np.diff(values) ** 2)
    return math.sqrt(float(np.mean(squares[: max(2, len(squares) - MAX_JUMPS)])) / 2)


def window_for(sigma: float, *, scale: float, count: int) -> int:
    """Return the window with which the standard error of a mean is scale /
    20, from 3 points to an eighth of all.
    """
    ratio = 20 * sigma / scale if scale > 0 else 0.0
    points = math.ceil(ratio**2) if ratio < 1e6 else count  # NaN if differences overflow
    return int(np.clip(points, 3, max(3, count // 8)))


def trailing_mean(values: Floats, window: int) -> Floats:
    """Return the mean of the last `window` values at each point, or of
    fewer at the beginning, of shape (N,).
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    end_indices = np.arange(1, len(values) + 1)
    starts = np.maximum(0, end_indices - window)
    means: Floats = (sums[end_indices] - sums[starts]) / (end_indices - starts)
    return means


def running_median(values: Floats, window: int) -> Floats:
    """Return the median of the last `window` values at each point, or of
    fewer at the beginning, of shape (N,).
    """
    first_medians = [np.median(values[:end]) for end in range(1, min(window, len(values) + 1))]
    if len(values) < window:
        return np.array(first_medians)
    medians = np.median(np.lib.stride_tricks.sliding_window_view(values, window), axis=1)
    return np.concatenate([first_medians, medians])


def luck_of_best(windows: float) -> float:
    """Return how far the best of several equal windows exceeds their mean by chance, in standard errors."""
    return math.sqrt(2 * math.log(max(windows, 1.0)))
