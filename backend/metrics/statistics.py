"""Statistics over seeds. Pure; few seeds are the rule, so intervals are Student's, not normal."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from backend.metrics.student import critical


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean of a metric over seeds and how sure one can be of it."""

    n: int
    """Number of seeds with a finite value of the metric."""
    mean: float | None
    std: float | None
    """Sample standard deviation (ddof 1); None with fewer than two seeds."""
    low: float | None
    """Lower end of the 95 % interval of the mean; None with fewer than two seeds."""
    high: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two means, with Welch's 95 % interval."""

    mean: float
    low: float | None
    high: float | None


LARGEST = 1e100
"""Largest value that counts as finite."""


@lru_cache(maxsize=4096)
def t_975(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t; fewer than one degree of freedom counts as one."""
    return critical(0.05, freedom)


def spread(values: Sequence[float]) -> Spread:
    """Return mean, standard deviation and 95 % interval of the finite values.

    So are values whose squares would overflow.
    """
    finite = [value for value in values if abs(value) < LARGEST]
    n = len(finite)
    if n == 0:
        return Spread(0, None, None, None, None)
    mean = math.fsum(finite) / n
    if n == 1:
        return Spread(1, mean, None, None, None)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in finite) / (n - 1))
    half = t_975(n - 1) * std / math.sqrt(n)
    return Spread(n, mean, std, mean - half, mean + half)


def difference(a: Spread, b: Spread) -> Difference | None:
    """mean(a) - mean(b) with the interval of Welch's test; None when one has no value."""
    if a.mean is None or b.mean is None:
        return None
    delta = a.mean - b.mean
    if a.std is None or b.std is None:
        return Difference(delta, None, None)
    part_a, part_b = a.std**2 / a.n, b.std**2 / b.n
    error = math.sqrt(part_a + part_b)
    if error == 0:
        return Difference(delta, delta, delta)
    freedom = (part_a + part_b) ** 2 / (part_a**2 / (a.n - 1) + part_b**2 / (b.n - 1))
    half = t_975(freedom) * error
    return Difference(delta, delta - half, delta + half)
