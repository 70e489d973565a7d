"""Permutation tests for the significance of a fall or a rise of a series.

The statistic of a series is compared with those of the same series with its blocks in random orders.
Statistics are divided by the step-to-step noise of the series, so that a smooth series differs from its
shuffled versions. The tests need no model of sparse or heavy-tailed noise.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from backend.analysis.diagnosis.log import Floats

Matrix = NDArray[np.float64]
"""An array of shape (series, points)."""

FALL_ALPHA = 0.004
"""Significance level of each of the two tests for a fall."""

ORDER_COUNT = 499
"""Number of random orders in a test, with which p is a multiple of 1/500."""

MIN_BLOCKS = 16
"""Minimum number of blocks, because fewer have too few orders for a small p-value."""

MAX_TESTED_POINTS = 240
"""Maximum number of points of a tested series. A longer series is reduced to the means of equal parts."""

SEED = 20261128


def fall_p_value(values: Floats) -> float:
    """Return the p-value of the largest fall between two successive windows."""
    return _p_value(values, _largest_falls)


def end_p_value(values: Floats) -> float:
    """Return the p-value of the fall from the best earlier window to the end."""
    return _p_value(values, _falls_to_the_end)


def rise_p_value(values: Floats) -> float:
    """Return the p-value of the largest rise from an earlier to a later part.

    A long series is also tested by its first points alone, because a rise within fewer steps than a bin has
    would disappear in the mean of the bin.
    """
    p_value = _p_value(values, _largest_rises)
    if len(values) <= MAX_TESTED_POINTS:
        return p_value
    return min(1.0, 2 * min(p_value, _p_value(values[:MAX_TESTED_POINTS], _largest_rises)))


def _p_value(values: Floats, statistic: Callable[[Matrix], Floats]) -> float:
    bin_means = _average_bins(values)
    count = len(bin_means)
    size = max(1, min(round(count ** (1 / 3)) - 1, count // MIN_BLOCKS))
    tested_values = bin_means[
        len(bin_means) % size :
    ]  # whole blocks, so that all orders have the same values
    if len(tested_values) < 4 or float(np.ptp(tested_values)) == 0.0:
        return 1.0
    scaled_values = tested_values / float(
        np.abs(tested_values).max()
    )  # squares of huge numbers would overflow
    observed_statistic = float(statistic(scaled_values[None, :])[0])
    shuffled_statistics = statistic(_shuffle_blocks(scaled_values, size))
    return float((1 + np.sum(shuffled_statistics >= observed_statistic - 1e-12)) / (1 + ORDER_COUNT))


def _average_bins(values: Floats) -> Floats:
    size = -(-len(values) // MAX_TESTED_POINTS)
    if size == 1:
        return values
    count = len(values) // size
    bin_means: Floats = values[len(values) - count * size :].reshape(count, size).mean(axis=1)
    return bin_means


def _shuffle_blocks(values: Floats, size: int) -> Matrix:
    """Return the series with its blocks in random orders, of shape (ORDER_COUNT, points)."""
    count = len(values) // size
    blocks = values.reshape(count, size)
    ranks = np.random.default_rng(SEED).random((ORDER_COUNT, count))
    shuffled_values: Matrix = blocks[np.argsort(ranks, axis=1)].reshape(ORDER_COUNT, count * size)
    return shuffled_values


def _noise(matrix: Matrix) -> Floats:
    """Return the standard deviation of each series from the differences of neighbours, of shape (series,)."""
    noise: Floats = np.sqrt(np.mean(np.diff(matrix, axis=1) ** 2, axis=1) / 2)
    return np.maximum(noise, 1e-12)


def _windows(count: int) -> list[int]:
    """Return the window lengths to compare, up to a quarter of the points, or 2 if there are few points."""
    if count < 12:
        return [2]
    return [length for length in (3, 5, 8, 13, 21, 34, 55, 89) if length <= max(3, count // 4)]


def _means(matrix: Matrix, window: int) -> Matrix:
    sums = np.cumsum(np.pad(matrix, ((0, 0), (1, 0))), axis=1)
    means: Matrix = (sums[:, window:] - sums[:, :-window]) / window
    return means


def _largest_falls(matrix: Matrix) -> Floats:
    falls = []
    for window in _windows(matrix.shape[1]):
        means = _means(matrix, window)
        best = np.maximum.accumulate(means, axis=1)
        falls.append((best[:, :-window] - means[:, window:]).max(axis=1, initial=0.0) * np.sqrt(window / 2))
    largest: Floats = np.max(falls, axis=0) / _noise(matrix)
    return largest


def _falls_to_the_end(matrix: Matrix) -> Floats:
    falls = []
    for window in _windows(matrix.shape[1]):
        means = _means(matrix, window)
        earlier = means[:, :-window].max(axis=1, initial=-np.inf)
        falls.append((earlier - means[:, -1]) * np.sqrt(window / 2))
    largest: Floats = np.max(falls, axis=0) / _noise(matrix)
    return largest


def _largest_rises(matrix: Matrix) -> Floats:
    count = matrix.shape[1]
    sizes = np.arange(2, count - 1)
    sums = np.cumsum(matrix, axis=1)
    means_before = sums[:, sizes - 1] / sizes
    means_after = (sums[:, -1:] - sums[:, sizes - 1]) / (count - sizes)
    weight = np.sqrt(sizes * (count - sizes) / count)
    rises: Floats = ((means_after - means_before) * weight).max(axis=1, initial=0.0) / _noise(matrix)
    return rises
