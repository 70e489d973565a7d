"""Tests of the smoothing, thinning and bands of curves, compared with slow and simple versions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.metrics.series import Curve, exponential_mean
from backend.metrics.thinning import thin

NAN, INF = math.nan, math.inf
VALUES = st.lists(
    st.one_of(st.floats(-1e6, 1e6), st.sampled_from([NAN, INF, -INF])), min_size=1, max_size=400
)


def curve(values, *, first=0):
    steps = np.arange(first, first + len(values))
    return Curve(steps, steps.astype(float), np.array(values, float))


def slow_ema(values, smoothing):
    last, count, averages = 0.0, 0, []
    for value in values:
        if math.isfinite(value):
            last = smoothing * last + (1 - smoothing) * value
            count += 1
            averages.append(last / (1 - smoothing**count))
        else:
            averages.append(value)
    return averages


def test_a_smoothed_value_gives_more_weight_to_later_points():
    assert exponential_mean(np.array([0.0, 1.0]), 0.5) == pytest.approx([0.0, 2 / 3])


@given(VALUES, st.sampled_from([0.1, 0.6, 0.99, 0.999]))
def test_smoothing_equals_a_loop_over_finite_values(values, smoothing):
    assert exponential_mean(np.array(values), smoothing) == pytest.approx(
        slow_ema(values, smoothing), nan_ok=True, rel=1e-7, abs=1e-6
    )


def test_a_nan_does_not_spread_through_the_average():
    smooth = exponential_mean(np.array([1.0, NAN, 3.0, INF]), 0.5)
    assert math.isnan(smooth[1])
    assert smooth[3] == INF
    assert smooth[2] == pytest.approx((0.25 * 1 + 0.5 * 3) / 0.75)


@given(VALUES, st.integers(10, 60))
def test_thinning_keeps_first_last_and_both_extremes_within_the_budget(values, max_points):
    points = curve(values)
    indices = thin(points, max_points)
    finite_indices = np.flatnonzero(np.isfinite(points.values))
    assert len(indices) <= max_points
    assert set(indices) <= set(finite_indices)
    if len(finite_indices):
        assert {finite_indices[0], finite_indices[-1]} <= set(indices)
        assert points.values[indices].max() == points.values[finite_indices].max()
        assert points.values[indices].min() == points.values[finite_indices].min()


@pytest.mark.parametrize("spike_step", [1, 4_999, 9_998])
def test_a_spike_of_one_step_survives(spike_step):
    values = np.zeros(10_000)
    values[spike_step] = 1000.0
    assert spike_step in thin(curve(values), 500)


def test_points_once_shown_stay_while_the_curve_grows():
    values = np.random.default_rng(0).normal(size=4000)
    first_indices, later_indices = thin(curve(values[:3000]), 500), thin(curve(values[:3100]), 500)
    unchanged_indices = [index for index in first_indices if index < 2900]
    assert set(unchanged_indices) <= set(later_indices)


def test_the_edges_of_a_band_also_keep_their_extremes():
    low, high = np.zeros(5000), np.zeros(5000)
    low[1234], high[4321] = -9.0, 9.0
    indices = thin(curve(np.zeros(5000)), 200, low, high)
    assert {1234, 4321} <= set(indices)
    assert len(indices) <= 200
