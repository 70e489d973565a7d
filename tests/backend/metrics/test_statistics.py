"""Intervals over few seeds, against textbook numbers."""

import math
from itertools import pairwise

import pytest

from backend.metrics.statistics import Spread, difference, spread, t_975


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (2, 4.3027), (30, 2.0423), (60, 2.0003), (120, 1.9799)]
)
def test_students_quantile_is_the_tables(freedom, quantile):
    assert t_975(freedom) == pytest.approx(quantile, abs=1e-3)


def test_students_quantile_falls_without_jumps():
    values = [t_975(1 + number / 10) for number in range(500)]
    assert all(a > b for a, b in pairwise(values))


def test_three_seeds_have_students_interval():
    seeds_spread = spread([0.5, 0.6, 0.7])
    assert seeds_spread.n == 3
    assert (seeds_spread.mean, seeds_spread.std) == pytest.approx((0.6, 0.1))
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert (seeds_spread.low, seeds_spread.high) == pytest.approx((0.6 - half, 0.6 + half))


def test_one_seed_has_no_interval():
    assert spread([0.5]) == Spread(1, 0.5, None, None, None)


def test_values_that_are_not_finite_are_left_out():
    assert spread([math.nan, 1.0, math.inf, 3.0]).mean == 2.0
    assert spread([math.nan]) == Spread(0, None, None, None, None)


def test_a_difference_has_welchs_interval():
    interval = difference(spread([1.0, 2.0, 3.0]), spread([5.0, 6.0, 7.0]))
    half = t_975(4) * math.sqrt(2 / 3)
    assert (interval.mean, interval.low, interval.high) == pytest.approx((-4.0, -4.0 - half, -4.0 + half))


def test_a_difference_of_single_seeds_says_how_far_but_not_how_sure():
    interval = difference(spread([1.0]), spread([3.0]))
    assert (interval.mean, interval.low, interval.high) == (-2.0, None, None)
    assert difference(spread([]), spread([1.0])) is None


def test_values_whose_squares_overflow_are_left_out():
    assert spread([9.9e307, -9.9e307, 9.9e307]).n == 0
    assert spread([9.9e307, 1.0, 3.0]).mean == 2.0
