"""Compare variants over seeds with paired or Welch tests, always-valid intervals, Holm's correction and
power.

A t test that is repeated after every new seed eventually finds a difference even if there is none, so two
situations are distinguished. With a `planned` number of seeds, the test is made once and Student's interval
is valid. At `any time`, a test may be made after each seed, and the interval is from a confidence sequence.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from backend.metrics.statistics import spread
from backend.metrics.student import critical, power, tail

Looks = Literal["planned", "any time"]

ALPHA = 0.05
POWER = 0.8

EFFECT_VARIANCE = 4.0
"""Variance of the normal mixture over standardised differences, chosen before any data, for 4 to 20 seeds."""

MAX_SEEDS = 200
"""Maximum number of seeds in a forecast."""

MIN_SEEDS = 2
MIN_AT_ANY_TIME = 4
"""Minimum number of seeds for which always-valid intervals at 95 % are finite."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """The difference of a variant from the baseline in one metric."""

    paired: bool
    """Whether values are paired by seed; otherwise they are paired by order at any time, or not paired."""
    n: int
    """Number of pairs; without pairs, the smaller number of seeds."""
    mean: float
    low: float | None
    """Lower end of the 95 % interval before the correction; None if there is none."""
    high: float | None
    p: float | None
    """Two-sided p-value before the correction; None without an interval, or if the values do not vary."""
    effect: float | None
    """Hedges' g_av: the corrected difference divided by the root mean square of the two standard deviations.
    """
    std: float | None
    """Standard deviation of the differences of pairs, or of pairs without correlation."""
    variance_ratio: float | None
    """Variance of the differences relative to independent seeds: below 1 pairing helps; None if unpaired."""


def contrast(values: Mapping[int, float], base: Mapping[int, float], looks: Looks) -> Contrast | None:
    """Return the difference of values by seed from the baseline; None if one side has no values.

    Seeds are paired if the smaller side has at least two and shares all of them; other seeds are left out.
    """
    if not values or not base:
        return None
    shared_seeds = sorted(values.keys() & base.keys())
    is_paired = len(shared_seeds) >= MIN_SEEDS and len(shared_seeds) == min(len(values), len(base))
    if is_paired:
        own_values, base_values = (
            [values[seed] for seed in shared_seeds],
            [base[seed] for seed in shared_seeds],
        )
    else:
        own_values, base_values = (
            [value_by_seed[seed] for seed in sorted(value_by_seed)] for value_by_seed in (values, base)
        )
        if looks == "any time":
            size = min(len(own_values), len(base_values))
            own_values, base_values = own_values[:size], base_values[:size]
    if is_paired or looks == "any time":
        return _paired_contrast(own_values, base_values, looks, by_seed=is_paired)
    return _welch_contrast(own_values, base_values)


def _paired_contrast(
    values: Sequence[float], base: Sequence[float], looks: Looks, *, by_seed: bool
) -> Contrast:
    differences = [a - b for a, b in zip(values, base, strict=True)]
    spread_of_differences = spread(differences)
    mean = spread_of_differences.mean if spread_of_differences.mean is not None else math.nan
    a, b = spread(values), spread(base)
    effect = _hedges(mean, a.std, b.std, spread_of_differences.n - 1)
    if spread_of_differences.std is None or _is_constant(spread_of_differences.std, values, base):
        return Contrast(by_seed, spread_of_differences.n, mean, None, None, None, effect, None, None)
    error = spread_of_differences.std / math.sqrt(spread_of_differences.n)
    t = mean / error
    critical_t = threshold(spread_of_differences.n, ALPHA, looks)
    p = tail(t, spread_of_differences.n - 1) if looks == "planned" else any_time_p(t, spread_of_differences.n)
    half_width = critical_t * error
    low, high = (mean - half_width, mean + half_width) if math.isfinite(half_width) else (None, None)
    independent_variance = (a.std or 0.0) ** 2 + (b.std or 0.0) ** 2
    ratio = spread_of_differences.std**2 / independent_variance if by_seed and independent_variance else None
    return Contrast(
        by_seed, spread_of_differences.n, mean, low, high, p, effect, spread_of_differences.std, ratio
    )


def _welch_contrast(values: Sequence[float], base: Sequence[float]) -> Contrast:
    a, b = spread(values), spread(base)
    n, mean = min(a.n, b.n), (a.mean or 0.0) - (b.mean or 0.0)
    if a.std is None or b.std is None or (_is_constant(a.std, values) and _is_constant(b.std, base)):
        return Contrast(False, n, mean, None, None, None, None, None, None)
    error_a, error_b = a.std / math.sqrt(a.n), b.std / math.sqrt(b.n)
    error = math.hypot(error_a, error_b)
    share_a, share_b = (error_a / error) ** 2, (error_b / error) ** 2  # squares of small numbers would be 0
    freedom = 1 / (share_a**2 / (a.n - 1) + share_b**2 / (b.n - 1))
    half_width = critical(ALPHA, freedom) * error
    effect = _hedges(mean, a.std, b.std, a.n + b.n - 2)
    p = tail(mean / error, freedom)
    std = math.hypot(a.std, b.std)
    return Contrast(False, n, mean, mean - half_width, mean + half_width, p, effect, std, None)


def _is_constant(std: float, *values: Sequence[float]) -> bool:
    """Return whether a spread is only the rounding error of equal numbers."""
    return std <= 1e-12 * max(abs(value) for sample in values for value in sample)


def _hedges(mean: float, std: float | None, second_std: float | None, freedom: int) -> float | None:
    """Return Hedges' g_av with the correction for small samples, J = 1 - 3 / (4 freedom - 1).

    Source: Lakens 2013, doi:10.3389/fpsyg.2013.00863, equations 4, 10 and 15.
    """
    if (
        std is None or second_std is None or std == second_std == 0 or freedom < 2
    ):  # J is 0 for a freedom of 1
        return None
    return mean / (math.hypot(std, second_std) / math.sqrt(2)) * (1 - 3 / (4 * freedom - 1))


def any_time_p(t: float, n: int) -> float:
    """Return the always-valid p-value of a t statistic of n differences, which is 1 / E, at most 1.

    E is the mixture of the t statistic's likelihood ratio over normal standardised differences of variance g,
    E = sqrt(r) ((1 + u) / (1 + r u))^(n/2), u = t^2 / (n - 1), r = 1 / (1 + n g). Under the null hypothesis
    its expectation is at most 1, however the number of seeds depends on the t statistics so far. This is
    exact for normal differences of any spread and any n, and approximate for other differences, like every t
    test. Source: Wang and Ramdas, arXiv:2310.03722; Perez-Ortiz et al., arXiv:2208.07610.
    """
    u, r = t * t / (n - 1), 1 / (1 + n * EFFECT_VARIANCE)
    log_e = 0.5 * math.log(r) + n / 2 * (math.log1p(u) - math.log1p(r * u))
    return min(1.0, math.exp(-max(log_e, 0.0)))


def threshold(n: int, alpha: float, looks: Looks) -> float:
    """Return the |t| above which n differences are significant at a level; infinite if no t suffices.

    At any time, it is the solution of `any_time_p(t, n) = alpha`.
    """
    if looks == "planned":
        return critical(alpha, n - 1)
    r = 1 / (1 + n * EFFECT_VARIANCE)
    ratio = (1 / (alpha * alpha * r)) ** (1 / n)
    if ratio * r >= 1:
        return math.inf
    return math.sqrt((n - 1) * (ratio - 1) / (1 - ratio * r))


def holm_correction(p_values: Sequence[float | None]) -> list[float | None]:
    """Return Holm's corrected p-values: claiming those below alpha bounds the chance of any wrong claim by
    alpha.

    Tests that could not be made (None) stay None but count in the number of tests. Source: Holm 1979,
    Scandinavian Journal of Statistics 6(2).
    """
    corrected_p_values: list[float | None] = [None] * len(p_values)
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    largest = 0.0
    for rank, (p, index) in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p))
        corrected_p_values[index] = largest
    return corrected_p_values


def forecast_power(mean: float, std: float, n: int, alpha: float, looks: Looks) -> float:
    """Return the power of n pairs at a level, given the true difference and spread."""
    if n < MIN_SEEDS or std <= 0:
        return 0.0
    return power(threshold(n, alpha, looks), n - 1, mean / std * math.sqrt(n))


def seeds_needed(observed_contrast: Contrast, alpha: float) -> int | None:
    """Return the minimum number of pairs with a power of 80 % at a level; None if it exceeds MAX_SEEDS.

    The observed difference and spread are assumed to be true, and the test to be valid at any time, because
    adding seeds means another test.
    """
    if observed_contrast.std is None or not observed_contrast.mean:
        return None

    def decides(n: int) -> bool:
        return (
            forecast_power(observed_contrast.mean, observed_contrast.std or 0.0, n, alpha, "any time")
            >= POWER
        )

    low, high = MIN_SEEDS, MAX_SEEDS
    if not decides(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high
