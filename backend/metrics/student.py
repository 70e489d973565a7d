"""Distribution, quantiles and power of Student's t, without scipy."""

import math
from functools import lru_cache

import numpy as np

_MIN_INTEGRAL_STEPS = 200
"""Minimum number of points of the integral over the standard deviation of the sample."""


def tail(t: float, freedom: float) -> float:
    """Return the two-sided p-value P(|T| >= t) with `freedom` > 0
    degrees of freedom, not necessarily whole.
    """
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


@lru_cache(4_096)
def critical(alpha: float, freedom: float) -> float:
    """Return the t that |T| exceeds with probability `alpha`.

    Fewer than one degree of freedom counts as one.
    """
    freedom = max(1.0, freedom)
    low, high = 0.0, 2.0
    while tail(high, freedom) > alpha:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        low, high = (middle, high) if tail(middle, freedom) > alpha else (low, middle)
    return (low + high) / 2


def power(threshold: float, freedom: float, shift: float) -> float:
    """Return the power of a two-sided test, P(|T| >= threshold) of the noncentral t with noncentrality
    `shift`.

    This is the integral of P(|Z + shift| >= threshold s) over the sample's standard deviation s in units of
    the true one, where freedom s^2 is chi-squared. The error is below 1e-3 for one degree of freedom and
    below 1e-5 for more.
    """
    if math.isinf(threshold):
        return 0.0
    width = 10 / math.sqrt(2 * freedom)
    low, high = max(0.0, 1 - width), 1 + width
    # with few degrees of freedom, the density is not smooth near 0
    steps = max(_MIN_INTEGRAL_STEPS, round(4_000 / freedom**2))
    s = low + (np.arange(steps) + 0.5) * (high - low) / steps
    log_scale = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)
    density = np.exp(log_scale + (freedom - 1) * np.log(s) - freedom * s * s / 2)
    tail_probabilities = [
        _normal(shift - threshold * scale) + _normal(-shift - threshold * scale) for scale in s
    ]
    return float(np.sum(density * tail_probabilities) / np.sum(density))


def _normal(z: float) -> float:
    """Return P(Z <= z) of the standard normal distribution."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b).

    Source: Press et al., Numerical Recipes, section 6.4 (continued fraction with Lentz's method).
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(front) * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    total = d
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            total *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return total
