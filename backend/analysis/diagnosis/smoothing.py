"""Noise of a series, and the trailing mean that its noise asks for."""

import math

import numpy as np

from backend.analysis.diagnosis.log import Floats

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation of a normal distribution to its standard deviation."""


def noise(values: Floats) -> float:
    """Standard deviation from step to step, by the median of the differences; a trend hardly counts.

    Half or more equal neighbours, as in a run that is dead by half: by the mean of the squared differences.
    """
    if len(values) < 3:
        return 0.0
    return robust_noise(values) or float(np.sqrt(np.mean(np.diff(values) ** 2) / 2))


def robust_noise(values: Floats) -> float:
    """Standard deviation from step to step, single jumps left out; 0 for mostly equal neighbours."""
    differences = np.diff(values)
    spread = np.median(np.abs(differences - np.median(differences)))
    return MAD_TO_SIGMA * float(spread) / math.sqrt(2)


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
