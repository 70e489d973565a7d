"""Curves: smoothing, thinning, bands; held against slow and obvious versions."""

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.metrics import thinning
from backend.metrics.series import Curve, ema, window
from backend.metrics.thinning import thin, thin_all, thin_non_finite

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


def test_a_smoothed_value_weighs_later_points_more():
    assert ema(np.array([0.0, 1.0]), 0.5) == pytest.approx([0.0, 2 / 3])


@given(VALUES, st.sampled_from([0.1, 0.6, 0.99, 0.999]))
def test_smoothing_equals_the_loop_over_finite_values(values, smoothing):
    assert ema(np.array(values), smoothing) == pytest.approx(
        slow_ema(values, smoothing), nan_ok=True, rel=1e-7, abs=1e-6
    )


def test_smoothing_changes_no_constant_curve():
    assert np.array_equal(ema(np.full(500, 0.1), 0.99), np.full(500, 0.1))


def test_a_nan_does_not_spread_through_the_average():
    smooth = ema(np.array([1.0, NAN, 3.0, INF]), 0.5)
    assert math.isnan(smooth[1])
    assert smooth[3] == INF
    assert smooth[2] == pytest.approx((0.25 * 1 + 0.5 * 3) / 0.75)


def test_a_short_curve_is_shown_as_it_is():
    assert thin(curve([1, 2, 3]), 10).tolist() == [0, 1, 2]


@given(VALUES, st.integers(10, 60))
def test_thinning_keeps_first_last_and_both_extremes_within_the_budget(values, max_points):
    points = curve(values)
    indices = thin(points, max_points)
    finite = np.flatnonzero(np.isfinite(points.values))
    assert len(indices) <= max_points
    assert set(indices) <= set(finite)
    if len(finite):
        assert {finite[0], finite[-1]} <= set(indices)
        assert points.values[indices].max() == points.values[finite].max()
        assert points.values[indices].min() == points.values[finite].min()


@pytest.mark.parametrize("spike_step", [1, 4_999, 9_998])
def test_a_spike_of_one_step_survives(spike_step):
    values = np.zeros(10_000)
    values[spike_step] = 1000.0
    assert spike_step in thin(curve(values), 500)


def test_points_once_shown_stay_while_the_curve_grows():
    values = np.random.default_rng(0).normal(size=4000)
    early, late = thin(curve(values[:3000]), 500), thin(curve(values[:3100]), 500)
    old = [index for index in early if index < 2900]
    assert set(old) <= set(late)


def test_the_edges_of_a_band_keep_their_extremes_too():
    low, high = np.zeros(5000), np.zeros(5000)
    low[1234], high[4321] = -9.0, 9.0
    indices = thin(curve(np.zeros(5000)), 200, low, high)
    assert {1234, 4321} <= set(indices)
    assert len(indices) <= 200


@given(
    sizes=st.lists(st.sampled_from([0, 1, 2, 9, 10, 11, 300]), min_size=1, max_size=5),
    at_once=st.sampled_from([1, 200, 10_000]),
    seed=st.integers(0, 2**16),
)
def test_curves_that_are_thinned_together_are_thinned_as_each_alone(sizes, at_once, seed):
    chance = np.random.default_rng(seed)
    curves = [curve(np.where(chance.random(n) < 0.1, np.nan, chance.integers(0, 9, n))) for n in sizes]
    alone = [thin(series, 10) for series in curves]
    with mock.patch.object(thinning, "AT_ONCE", at_once):
        together = thin_all(curves, 10)
    assert [places.tolist() for places in together] == [places.tolist() for places in alone]
    for series, places in zip(curves, together, strict=True):
        finite = series.values[np.isfinite(series.values)]
        assert not len(finite) or {finite.min(), finite.max()} <= set(series.values[places])


def test_of_very_many_nan_the_first_is_shown():
    values = np.zeros(1000)
    values[300:] = NAN
    places = thin_non_finite(curve(values), 50)
    assert places[0] == 300
    assert len(places) <= 50


@pytest.mark.parametrize("max_points", [1, 2, 3, 10, 50])
def test_of_very_many_nan_the_last_is_kept_as_well(max_points):
    values = np.where(np.arange(1000) % 2, 0.5, NAN)
    places = thin_non_finite(curve(values), max_points)
    assert places[0] == 0
    assert len(places) <= max_points
    assert places[-1] == (998 if max_points > 1 else 0)
    assert len(set(places)) == len(places)


def test_the_window_has_both_of_its_ends():
    assert window(curve([5, 6, 7, 8]), 1, 2).tolist() == [False, True, True, False]
    assert window(curve([5, 6, 7, 8]), None, None).all()
