"""Statistics over seeds. Pure; few seeds are the rule, so intervals are Student's, not normal."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_T_975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip
"""97.5 % quantiles of Student's t for 1..30 degrees of freedom."""

_Z_975 = 1.959964


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean of a metric over seeds and how sure one can be of it."""

    n: int
    """How many seeds have the metric with a finite value."""
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
"""Beyond it a value counts as not finite."""


def t_975(freedom: float) -> float:
    """97.5 % quantile of Student's t; between and beyond the table by its expansion (error below 1e-3).

    Fewer than one degree of freedom counts as one.
    """
    if freedom <= 30 and freedom == int(freedom) and freedom >= 1:
        return _T_975[int(freedom) - 1]
    if freedom < 30:
        low = max(1, math.floor(freedom))
        weight = max(0.0, freedom - low)
        # Linear in 1/freedom between two entries.
        share = (1 / low - 1 / (low + weight)) / (1 / low - 1 / (low + 1))
        return _T_975[low - 1] + share * (_T_975[low] - _T_975[low - 1])
    z = _Z_975
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def spread(values: Sequence[float]) -> Spread:
    """Mean, standard deviation and 95 % interval; values that are not finite are left out of all three.

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
