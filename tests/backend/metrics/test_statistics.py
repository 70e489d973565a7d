"""Tests of intervals over few seeds, against textbook numbers."""

import math

import pytest

from backend.metrics.statistics import Spread, difference, spread, t_975


def test_nonfinite_values_are_ignored():
    assert spread([math.nan, 1.0, math.inf, 3.0]).mean == 2.0
    assert spread([math.nan]) == Spread(0, None, None, None, None)


def test_a_difference_has_welchs_interval():
    interval = difference(spread([1.0, 2.0, 3.0]), spread([5.0, 6.0, 7.0]))
    half_width = t_975(4) * math.sqrt(2 / 3)
    assert (interval.mean, interval.low, interval.high) == pytest.approx(
        (-4.0, -4.0 - half_width, -4.0 + half_width)
    )


def test_values_whose_squares_overflow_are_ignored():
    assert spread([9.9e307, -9.9e307, 9.9e307]).n == 0
    assert spread([9.9e307, 1.0, 3.0]).mean == 2.0
