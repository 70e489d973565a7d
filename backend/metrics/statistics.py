"""Statistics over seeds, with Student's intervals because there are usually few seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from backend.metrics.student import critical


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean of a metric over seeds, with its standard deviation and 95 % interval."""

    n: int
    """Number of seeds with a finite value of the metric."""
    mean: float | None
    std: float | None
    """Sample standard deviation (ddof 1), or None with fewer than two seeds."""
    low: float | None
    """Lower end of the 95 % interval of the mean, or None with fewer than two seeds."""
    high: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two means, with Welch's 95 % interval."""

    mean: float
    low: float | None
    high: float | None


MAX_FINITE = 1e100
"""Magnitude from which a value is treated as infinite, because its square could overflow."""


@lru_cache(maxsize=4096)
def t_975(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t. Fewer than one degree of freedom counts as one."""
    return critical(0.05, freedom)


def spread(values: Sequence[float]) -> Spread:
    """Return the mean, standard deviation and 95 % interval of the finite values.

    Values whose squares could overflow are also left out.
    """
    finite = [value for value in values if abs(value) < MAX_FINITE]
    n = len(finite)
    if n == 0:
        return Spread(0, None, None, None, None)
    mean = math.fsum(finite) / n
    if n == 1:
        return Spread(1, mean, None, None, None)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in finite) / (n - 1))
    half_width = t_975(n - 1) * std / math.sqrt(n)
    return Spread(n, mean, std, mean - half_width, mean + half_width)


def difference(a: Spread, b: Spread) -> Difference | None:
    """Return mean(a) - mean(b) with the interval of Welch's test, or None if one has no value."""
    if a.mean is None or b.mean is None:
        return None
    delta = a.mean - b.mean
    if a.std is None or b.std is None:
        return Difference(delta, None, None)
    variance_a, variance_b = a.std**2 / a.n, b.std**2 / b.n
    standard_error = math.sqrt(variance_a + variance_b)
    if standard_error == 0:
        return Difference(delta, delta, delta)
    freedom = (variance_a + variance_b) ** 2 / (variance_a**2 / (a.n - 1) + variance_b**2 / (b.n - 1))
    half_width = t_975(freedom) * standard_error
    return Difference(delta, delta - half_width, delta + half_width)
