"""Tests of differences over seeds: numbers by hand, and simulations of coverage, error rates and power."""

import math

import numpy as np
import pytest

from backend.experiments.matrix import inference
from backend.experiments.matrix.inference import (
    ALPHA,
    any_time_p,
    forecast_power,
    threshold,
)


def contrast(variant_values, base_values, looks):
    """Return the difference, and fail if there is none."""
    return inference.contrast(variant_values, base_values, looks)


def seeds_needed(current, alpha):
    """Return the pairs needed for a power of 80 %, and fail if there are too many."""
    return inference.seeds_needed(current, alpha)


def holm(p_values):
    """Return the corrected p-values."""
    return inference.holm_correction(p_values)


def values_by_seed(values):
    return dict(enumerate(values))


def test_shared_seeds_are_paired():
    comparison = contrast({0: 1.0, 1: 2.0, 2: 3.0}, {2: 1.0, 1: 1.0, 0: 1.0, 3: 9.0}, "planned")
    # Differences 0, 1, 2: mean 1, standard deviation 1, error 1 / sqrt(3).
    assert (comparison.paired, comparison.n, comparison.mean, comparison.std) == (True, 3, 1.0, 1.0)
    half_width = 4.30265 / math.sqrt(3)
    assert (comparison.low, comparison.high) == pytest.approx((1 - half_width, 1 + half_width), abs=1e-4)
    assert comparison.p == pytest.approx(0.225403, abs=1e-6)  # t = sqrt(3), 2 degrees of freedom


@pytest.mark.parametrize(
    ("of_variant", "base"),
    [
        ({0: 1.0, 1: 2.0, 2: 3.0}, {3: 5.0, 4: 6.0, 5: 7.0}),
        ({0: 1.0, 1: 2.0, 2: 3.0}, {2: 5.0, 1: 6.0, 7: 7.0}),
    ],
)
def test_without_enough_shared_seeds_welchs_test_is_used(of_variant, base):
    comparison = contrast(of_variant, base, "planned")
    assert (comparison.paired, comparison.n, comparison.mean) == (False, 3, -4.0)
    half_width = 2.77645 * math.sqrt(2 / 3)  # 4 degrees of freedom
    assert (comparison.low, comparison.high) == pytest.approx((-4 - half_width, -4 + half_width), abs=1e-4)
    assert comparison.p == pytest.approx(0.008049, abs=1e-5)  # t = -4 / sqrt(2 / 3)
    assert comparison.effect == pytest.approx(-4 * (1 - 3 / 15))


def test_the_effect_size_uses_the_spread_of_the_variants_not_of_the_pairs():
    comparison = contrast(values_by_seed([1.0, 2.0, 3.1]), values_by_seed([0.0, 1.0, 2.0]), "planned")
    spreads = (np.std([1.0, 2.0, 3.1], ddof=1) ** 2 + 1.0) / 2
    assert comparison.effect == pytest.approx(3.1 / 3 / math.sqrt(spreads) * (1 - 3 / 7))
    assert comparison.variance_ratio < 0.01


@pytest.mark.parametrize(("of_variant", "base"), [([0.0] * 4, [0.0] * 4), ([0.3, 0.4], [0.1, 0.2])])
@pytest.mark.parametrize("looks", ["planned", "any time"])
def test_constant_differences_have_no_interval(of_variant, base, looks):
    comparison = contrast(values_by_seed(of_variant), values_by_seed(base), looks)
    assert (comparison.low, comparison.high, comparison.p) == (None, None, None)


def test_one_seed_has_only_a_difference():
    comparison = contrast({3: 1.0}, {3: 0.5}, "planned")
    assert (comparison.mean, comparison.n, comparison.low, comparison.p) == (0.5, 1, None, None)
    assert contrast({}, {0: 1.0}, "planned") is None


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.02, None, 0.5]) == [pytest.approx(0.06), None, 1.0]
    assert holm([]) == []


def test_an_anytime_interval_ends_where_its_p_value_is_alpha():
    for n in (4, 7, 30, 200):
        assert any_time_p(threshold(n, ALPHA, "any time"), n) == pytest.approx(ALPHA)
        assert threshold(n, ALPHA, "any time") > threshold(n, ALPHA, "planned")
    assert threshold(3, ALPHA, "any time") == math.inf


@pytest.mark.nightly
@pytest.mark.parametrize("correlation", [0.0, 0.6, None])
def test_intervals_cover_the_true_difference_in_95_percent(correlation):
    rng = np.random.default_rng(7)
    covered_count, times = 0, 6_000
    for _ in range(times):
        base, noise = rng.normal(0, 1, 5), rng.normal(0, 1, 5)
        correlated = (
            noise if correlation is None else correlation * base + math.sqrt(1 - correlation**2) * noise
        )
        seeds = range(5) if correlation is not None else range(5, 10)
        comparison = contrast(
            dict(zip(seeds, correlated + 0.3, strict=True)), values_by_seed(base), "planned"
        )
        covered_count += comparison.low <= 0.3 <= comparison.high
    assert covered_count / times == pytest.approx(0.95, abs=0.01)


def test_at_most_5_percent_of_null_tables_claim_a_difference():
    rng = np.random.default_rng(3)
    false_claims, tables = 0, 1_500
    for _ in range(tables):
        base = rng.normal(0, 1, (3, 4))
        rows = rng.normal(0, 1, (3, 3, 4))
        p_values = [
            contrast(values_by_seed(row[metric]), values_by_seed(base[metric]), "planned").p
            for row in rows
            for metric in range(3)
        ]
        false_claims += min(holm(p_values)) <= ALPHA
    assert false_claims / tables <= ALPHA + 2 * math.sqrt(ALPHA * (1 - ALPHA) / tables)


def t_after_each(differences):
    """Return the t statistics of the first 2, 3, ... differences, as (runs, n - 1)."""
    n = np.arange(1, differences.shape[1] + 1)
    mean = np.cumsum(differences, axis=1) / n
    squares = np.cumsum(differences**2, axis=1) - n * mean**2
    with np.errstate(all="ignore"):
        return (mean * np.sqrt(n) / np.sqrt(squares / (n - 1)))[:, 1:]


def test_looking_after_each_seed_keeps_the_error_rate_of_the_anytime_interval():
    t = np.abs(t_after_each(np.random.default_rng(5).normal(0, 1, (4_000, 60))))
    seeds = range(2, 61)
    at_any_time = t > [threshold(n, ALPHA, "any time") for n in seeds]
    crossings_by_look = t > [threshold(n, ALPHA, "planned") for n in seeds]
    assert at_any_time.any(axis=1).mean() <= 0.055
    assert crossings_by_look.any(axis=1).mean() > 0.25  # the reason for the anytime interval


@pytest.mark.parametrize("looks", ["planned", "any time"])
@pytest.mark.parametrize(("effect", "n"), [(0.8, 12), (1.5, 7), (2.5, 6)])
def test_the_power_matches_the_forecast(effect, n, looks):
    differences = np.random.default_rng(11).normal(effect, 1, (6_000, n))
    is_crossed = np.abs(t_after_each(differences)[:, -1]) > threshold(n, ALPHA, looks)
    assert is_crossed.mean() == pytest.approx(forecast_power(effect, 1.0, n, ALPHA, looks), abs=0.02)


def test_the_forecast_number_of_seeds_decides_in_80_percent():
    values = contrast(
        values_by_seed([0.55, 0.62, 0.5, 0.7]), values_by_seed([0.5, 0.5, 0.5, 0.5]), "any time"
    )
    for alpha in (ALPHA, ALPHA / 6):
        n = seeds_needed(values, alpha)
        assert forecast_power(values.mean, values.std, n, alpha, "any time") >= 0.8
        assert forecast_power(values.mean, values.std, n - 1, alpha, "any time") < 0.8
        differences = np.random.default_rng(2).normal(values.mean, values.std, (4_000, n))
        t = np.abs(t_after_each(differences)[:, -1])
        assert (t > threshold(n, alpha, "any time")).mean() >= 0.75


@pytest.mark.parametrize("scale", [1e80, 1e-90, 1.0])
def test_welchs_test_holds_at_any_scale(scale):
    of_variant = {1: 1.0 * scale, 2: 2.0 * scale, 3: 4.0 * scale}
    base = {11: 1.5 * scale, 12: 1.0 * scale, 13: 0.5 * scale}
    comparison = contrast(of_variant, base, "planned")
    assert (comparison.mean / scale, comparison.p) == (pytest.approx(4 / 3), pytest.approx(0.26635, abs=1e-5))
