"""Tests of means of curves over steps, time and tokens, in which no peak may be lost."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.metrics import means
from backend.metrics.means import average_curves
from backend.metrics.response import mean_item
from backend.metrics.series import Curve
from backend.metrics.statistics import t_975
from backend.metrics.view import View
from tests.backend.metrics.test_series import curve

NAN, INF = math.nan, math.inf
T_975 = np.array([NAN, *map(t_975, range(1, 30))])


def timed_curve(x, values):
    return Curve(np.arange(len(x)), np.array(x, float), np.array(values, float))


def thinned_mean(curves, band="", max_points=500, **window):
    return mean_item(
        curves, band, View("wall", window.get("x_min"), window.get("x_max"), max_points, 0.0, None)
    )


def test_the_mean_over_wall_time_never_runs_backwards():
    slow_curve = Curve(np.arange(1, 3), np.array([5.0, 10.0]), np.array([1.0, 3.0]))
    fast_curve = Curve(np.arange(1, 5), np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 2.0, 4.0, 6.0]))
    mean = average_curves([slow_curve, fast_curve], "", T_975).mean
    assert (np.diff(mean.x) > 0).all()
    assert mean.x[-1] == 10


def test_the_mean_over_wall_time_reads_both_curves_at_the_same_moment():
    slow_curve = Curve(np.arange(3), np.array([0.0, 4.0, 8.0]), np.array([0.0, 4.0, 8.0]))
    fast_curve = Curve(
        np.arange(5), np.array([0.0, 2.0, 4.0, 6.0, 8.0]), np.array([2.0, 4.0, 6.0, 8.0, 10.0])
    )
    mean = average_curves([slow_curve, fast_curve], "", T_975)
    assert dict(zip(mean.mean.x, mean.mean.values, strict=True)) == {0: 1, 2: 3, 4: 5, 6: 7, 8: 9}
    assert mean.n.tolist() == [2, 2, 2, 2, 2]


def test_a_mean_over_runs_equals_numpys_mean_of_the_available_values():
    band = average_curves([curve([1.0, 2.0, 3.0]), curve([3.0, NAN]), curve([5.0])], "std", T_975)
    assert band.mean.values == pytest.approx([3.0, 2.0, 3.0])
    assert band.n.tolist() == [3, 1, 1]
    assert band.high == pytest.approx([3.0 + np.std([1, 3, 5], ddof=1), NAN, NAN], nan_ok=True)


@pytest.mark.parametrize(
    ("spread", "half"),
    [
        ("std", 2.0),
        ("stderr", 2 / math.sqrt(3)),
        ("ci95", 4.302652729911275 * 2 / math.sqrt(3)),
        ("minmax", 2.0),
    ],
)
def test_each_band_has_its_width(spread, half):
    band = average_curves([curve([metric_value]) for metric_value in (1.0, 3.0, 5.0)], spread, T_975)
    assert (band.low[0], band.high[0]) == pytest.approx((3 - half, 3 + half))


def test_a_slow_run_continues_after_the_end_of_a_fast_one_with_more_points():
    rng = np.random.default_rng(0)
    fast_curve = timed_curve(np.linspace(0, 240, 5_000), rng.normal(size=5_000))
    slow_curve = timed_curve(np.linspace(0, 1_000, 1_000), rng.normal(size=1_000))
    thinned_points = thinned_mean([fast_curve, slow_curve])
    assert np.count_nonzero(thinned_points["x"] > 240) > 100
    assert set(thinned_points["n"][thinned_points["x"] > 240]) == {1}
    slow_values = slow_curve.values[slow_curve.x > 240]
    mean_values = thinned_points["values"][thinned_points["x"] > 240]
    assert (mean_values.min(), mean_values.max()) == (slow_values.min(), slow_values.max())


def test_a_nonfinite_value_excludes_its_run_at_that_point():
    curve_with_gap = timed_curve([0, 1, 2, 3, 4], [1, 1, NAN, 1, 1])
    finite_curve = timed_curve([0, 1.5, 2.5, 4], [3, 3, 3, 3])
    band = average_curves([curve_with_gap, finite_curve], "minmax", T_975)
    point_by_x = dict(zip(band.mean.x.tolist(), zip(band.mean.values, band.n, strict=True), strict=True))
    assert point_by_x[1.0] == (2, 2)
    assert point_by_x[1.5] == (3, 1)
    assert point_by_x[2.5] == (3, 1)
    assert point_by_x[3.0] == (2, 2)


RUNS = st.lists(
    st.lists(
        st.tuples(
            st.one_of(st.just(0.0), st.floats(1e-6, 3)),
            st.one_of(st.floats(-1e6, 1e6), st.sampled_from([NAN, INF, -INF])),
        ),
        min_size=1,
        max_size=150,
    ),
    min_size=1,
    max_size=4,
)


@given(RUNS, st.integers(20, 60), st.booleans())
def test_no_spike_of_any_run_is_lost_in_a_mean_over_time(runs, max_points, many):
    """This also holds for so many points that the mean keeps only those at the peaks."""
    curves = [
        timed_curve(np.cumsum([gap for gap, _ in run]), [metric_value for _, metric_value in run])
        for run in runs
    ]
    finite_values = np.concatenate([run_curve.values[np.isfinite(run_curve.values)] for run_curve in curves])
    original_max_cells, means.MAX_CELLS = means.MAX_CELLS, 100 if many else means.MAX_CELLS
    try:
        thinned_points = thinned_mean(curves, "minmax", max_points)
    finally:
        means.MAX_CELLS = original_max_cells
    assert len(thinned_points["x"]) <= max_points
    if len(finite_values):
        edges = [
            *thinned_points["values"].tolist(),
            *(
                edge
                for edge_values in (thinned_points["low"], thinned_points["high"])
                for edge in edge_values
                if edge is not None
            ),
        ]
        assert min(edges) == pytest.approx(finite_values.min())
        assert max(edges) == pytest.approx(finite_values.max())
        assert (thinned_points["n"] >= 1).all()
        x_values = [x for run_curve in curves for x in run_curve.x[np.isfinite(run_curve.values)]]
        assert thinned_points["x"][0] == pytest.approx(min(x_values))
        assert thinned_points["x"][-1] == pytest.approx(max(x_values))
