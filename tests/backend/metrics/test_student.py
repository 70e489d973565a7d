"""Tests of Student's t distribution against tables and published power calculations."""

import math

import pytest

from backend.metrics.student import critical, power, tail


@pytest.mark.parametrize(
    ("alpha", "freedom", "quantile"),
    [(0.05, 1, 12.7062), (0.05, 4, 2.77645), (0.01, 10, 3.16927), (0.001, 3, 12.9240), (0.05, 120, 1.97993)],
)
def test_quantiles_match_the_tables(alpha, freedom, quantile):
    assert critical(alpha, freedom) == pytest.approx(quantile, abs=1e-4)
    assert tail(quantile, freedom) == pytest.approx(alpha, rel=1e-4)


def test_quantiles_at_the_ends_of_the_distribution():
    assert tail(0, 5) == 1
    assert tail(math.inf, 5) == 0
    assert tail(1e9, 3) < 1e-20
    assert power(math.inf, 3, 100) == 0


@pytest.mark.parametrize(
    ("effect", "n", "expected"), [(0.5, 10, 0.2932), (0.5, 34, 0.8078), (1.0, 10, 0.8031)]
)
def test_power_matches_the_paired_t_test(effect, n, expected):
    """The numbers are those of G*Power for a paired, two-sided test at 5 %."""
    assert power(critical(0.05, n - 1), n - 1, effect * math.sqrt(n)) == pytest.approx(expected, abs=1e-4)
