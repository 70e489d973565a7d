"""Permutation tests: whether a series falls or rises by more than its own noise in another order does.

The blocks of a series are put into random orders; its statistic is compared with those of the shuffled
series. Statistics are divided by the noise from step to step of the same series, so a series that moves
smoothly stands out from its shuffled versions, and sparse or heavy-tailed noise needs no model.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from backend.analysis.diagnosis.log import Floats

Matrix = NDArray[np.float64]
"""(series, points)"""

ALPHA = 0.004
"""Share of series without any trend that a test may call fallen; there are two tests."""

ORDERS = 499
"""Random orders of a test: p is a multiple of 1/500."""

MAX_TESTED = 240
"""Maximum number of points of a tested series; a longer series is tested by the means of equal parts."""

SEED = 20261128


def fall_p_value(values: Floats) -> float:
    """Return the chance of so large a fall between two windows, the second later, in a random order."""
    return _p_value(values, _largest_falls)


def end_p_value(values: Floats) -> float:
    """Return the chance of so low an end below an earlier window in a random order."""
    return _p_value(values, _falls_to_the_end)


def rise_p_value(values: Floats) -> float:
    """Return the chance of so large a difference between a later and an earlier part in a random order."""
    return _p_value(values, _largest_rises)


def _p_value(values: Floats, statistic: Callable[[Matrix], Floats]) -> float:
    binned = _binned(values)
    size = max(1, round(len(binned) ** (1 / 3)) - 1)
    tested = binned[len(binned) % size :]  # whole blocks, so that every order holds the same values
    if len(tested) < 4 or float(np.ptp(tested)) == 0.0:
        return 1.0
    scaled = tested / float(np.abs(tested).max())  # squares of absurd numbers would overflow
    observed = float(statistic(scaled[None, :])[0])
    by_chance = statistic(_shuffled(scaled, size))
    return float((1 + np.sum(by_chance >= observed - 1e-12)) / (1 + ORDERS))


def _binned(values: Floats) -> Floats:
    size = -(-len(values) // MAX_TESTED)
    if size == 1:
        return values
    count = len(values) // size
    binned: Floats = values[len(values) - count * size :].reshape(count, size).mean(axis=1)
    return binned


def _shuffled(values: Floats, size: int) -> Matrix:
    """(ORDERS, points) the series with its blocks of this size in random orders."""
    count = len(values) // size
    blocks = values.reshape(count, size)
    ranks = np.random.default_rng(SEED).random((ORDERS, count))
    shuffled: Matrix = blocks[np.argsort(ranks, axis=1)].reshape(ORDERS, count * size)
    return shuffled


def _noise(matrix: Matrix) -> Floats:
    """(series,) root mean square of the differences between neighbours, as a standard deviation."""
    noise: Floats = np.sqrt(np.mean(np.diff(matrix, axis=1) ** 2, axis=1) / 2)
    return np.maximum(noise, 1e-12)


def _windows(count: int) -> list[int]:
    """Lengths of the windows that are compared: up to a quarter of the points; 2 among a few evaluations."""
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
    least = max(2, count // 20)
    sizes = np.arange(least, count - least + 1)
    sums = np.cumsum(matrix, axis=1)
    before = sums[:, sizes - 1] / sizes
    after = (sums[:, -1:] - sums[:, sizes - 1]) / (count - sizes)
    weight = np.sqrt(sizes * (count - sizes) / count)
    rises: Floats = ((after - before) * weight).max(axis=1, initial=0.0) / _noise(matrix)
    return rises
