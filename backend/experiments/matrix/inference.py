"""Differences between variants over seeds: paired or Welch tests, always-valid intervals, Holm, power. Pure.

A t test that is repeated after every new seed finds a difference sooner or later where there is none, so two
ways to look are told apart. Under a `planned` number of seeds there is one look, and Student's interval
holds. At `any time` there may be a look after each seed: the interval is that of a confidence sequence.
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
"""Variance of the normal mixture over standardised differences: chosen before any data, for 4 to 20 seeds."""

MAX_SEEDS = 200
"""The largest number of seeds that a forecast names."""

MIN_SEEDS = 2
MIN_AT_ANY_TIME = 4
"""Seeds from which on the intervals at 95 % are finite."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """The difference of a variant to the baseline in one metric."""

    paired: bool
    """Whether values are paired by seed, or (at any time, without shared seeds) the k-th with the k-th."""
    n: int
    """Pairs; without pairs the smaller number of seeds."""
    mean: float
    low: float | None
    """Lower end of the 95 % interval, before the correction; None if there is none."""
    high: float | None
    p: float | None
    """Two-sided p value before the correction; None without an interval, or if nothing varies."""
    effect: float | None
    """Hedges' g_av: the difference over the root mean square of the two standard deviations, corrected."""
    std: float | None
    """Standard deviation of the differences of pairs, or that pairs without correlation would have."""
    variance_ratio: float | None
    """Variance of the differences over that of two independent seeds: below 1 pairing pays; None unpaired."""


def contrast(values: Mapping[int, float], base: Mapping[int, float], looks: Looks) -> Contrast | None:
    """Compare values by seed, own minus base; None if one side has no value.

    Seeds are paired where the smaller side has at least two and shares all of them; others are left out.
    """
    if not values or not base:
        return None
    shared = sorted(values.keys() & base.keys())
    is_paired = len(shared) >= MIN_SEEDS and len(shared) == min(len(values), len(base))
    if is_paired:
        mine, theirs = [values[seed] for seed in shared], [base[seed] for seed in shared]
    else:
        mine, theirs = ([side[seed] for seed in sorted(side)] for side in (values, base))
        if looks == "any time":
            size = min(len(mine), len(theirs))
            mine, theirs = mine[:size], theirs[:size]
    if is_paired or looks == "any time":
        return _paired_contrast(mine, theirs, looks, by_seed=is_paired)
    return _welch_contrast(mine, theirs)


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
    least = threshold(spread_of_differences.n, ALPHA, looks)
    p = tail(t, spread_of_differences.n - 1) if looks == "planned" else any_time_p(t, spread_of_differences.n)
    half = least * error
    low, high = (mean - half, mean + half) if math.isfinite(half) else (None, None)
    apart = (a.std or 0.0) ** 2 + (b.std or 0.0) ** 2
    ratio = spread_of_differences.std**2 / apart if by_seed and apart else None
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
    share_a, share_b = (error_a / error) ** 2, (error_b / error) ** 2  # powers of small numbers would be 0
    freedom = 1 / (share_a**2 / (a.n - 1) + share_b**2 / (b.n - 1))
    half = critical(ALPHA, freedom) * error
    effect = _hedges(mean, a.std, b.std, a.n + b.n - 2)
    p = tail(mean / error, freedom)
    std = math.hypot(a.std, b.std)
    return Contrast(False, n, mean, mean - half, mean + half, p, effect, std, None)


def _is_constant(std: float, *values: Sequence[float]) -> bool:
    """Return whether a spread is nothing but the rounding of equal numbers."""
    return std <= 1e-12 * max(abs(value) for side in values for value in side)


def _hedges(mean: float, std: float | None, second_std: float | None, freedom: int) -> float | None:
    """Hedges' g_av with the correction for small samples, J = 1 - 3 / (4 freedom - 1).

    Source: Lakens 2013, doi:10.3389/fpsyg.2013.00863, equations 4, 10 and 15.
    """
    if std is None or second_std is None or std == second_std == 0 or freedom < 2:  # for 1, J is 0
        return None
    return mean / (math.hypot(std, second_std) / math.sqrt(2)) * (1 - 3 / (4 * freedom - 1))


def any_time_p(t: float, n: int) -> float:
    """Return the p-value of a t statistic of n differences that holds at any time, 1 / E at most 1.

    E is the mixture of the t statistic's likelihood ratio over normal standardised differences of variance g,
    E = sqrt(r) ((1 + u) / (1 + r u))^(n/2), u = t^2 / (n - 1), r = 1 / (1 + n g): under the null its
    expectation is at most 1 however the number of seeds depends on the t statistics so far. Exact for normal
    differences of any spread and any n; other differences: approximate, as for every t test.
    Source: Wang and Ramdas, arXiv:2310.03722; Perez-Ortiz et al., arXiv:2208.07610.
    """
    u, r = t * t / (n - 1), 1 / (1 + n * EFFECT_VARIANCE)
    log_e = 0.5 * math.log(r) + n / 2 * (math.log1p(u) - math.log1p(r * u))
    return min(1.0, math.exp(-max(log_e, 0.0)))


def threshold(n: int, alpha: float, looks: Looks) -> float:
    """Return the |t| above which n differences are significant at a level; infinite if no t suffices.

    At any time it solves `any_time_p(t, n) = alpha` for t.
    """
    if looks == "planned":
        return critical(alpha, n - 1)
    r = 1 / (1 + n * EFFECT_VARIANCE)
    ratio = (1 / (alpha * alpha * r)) ** (1 / n)
    if ratio * r >= 1:
        return math.inf
    return math.sqrt((n - 1) * (ratio - 1) / (1 - ratio * r))


def holm_correction(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's corrected p-values: claiming those below alpha, one claim or more is wrong with at most alpha.

    A test that could not be made (None) counts in the number of tests and stays None.
    Source: Holm 1979, Scandinavian Journal of Statistics 6(2).
    """
    corrected: list[float | None] = [None] * len(p_values)
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    largest = 0.0
    for rank, (p, index) in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p))
        corrected[index] = largest
    return corrected


def forecast_power(mean: float, std: float, n: int, alpha: float, looks: Looks) -> float:
    """Power of n pairs at a level, if the true difference and spread are these."""
    if n < MIN_SEEDS or std <= 0:
        return 0.0
    return power(threshold(n, alpha, looks), n - 1, mean / std * math.sqrt(n))


def seeds_needed(observed: Contrast, alpha: float) -> int | None:
    """Return the least number of pairs with a power of 80 % at a level; None beyond MAX_SEEDS.

    It takes the difference and spread for those seen, and looks at any time: more seeds mean another look.
    """
    if observed.std is None or not observed.mean:
        return None

    def decides(n: int) -> bool:
        return forecast_power(observed.mean, observed.std or 0.0, n, alpha, "any time") >= POWER

    low, high = MIN_SEEDS, MAX_SEEDS
    if not decides(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high
