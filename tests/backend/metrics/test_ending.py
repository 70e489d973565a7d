"""Tests of the end of a curve, by hand."""

import math

import numpy as np
import pytest

from backend.metrics.ending import curve_end, mean_end
from backend.metrics.series import Curve


def curve(values, *, step_interval=1):
    steps = np.arange(1, len(values) + 1) * step_interval
    return Curve(steps, steps.astype(float), np.array(values, float))


def test_the_end_is_the_mean_of_the_last_ten_steps_or_the_last_evaluation():
    rising_curve = curve(range(1, 31))
    assert curve_end("reward/mean", rising_curve) == pytest.approx(25.5)
    assert curve_end("eval/accuracy", rising_curve) == 30
    assert curve_end("reward/mean", curve([1, 2, 3], step_interval=25)) == 3
    assert curve_end("reward/mean", curve([])) is None


def test_a_nonfinite_value_at_the_end_is_excluded():
    for values in ([1, math.nan], [math.inf, 1]):
        end = curve_end("loss/total", curve(values))
        assert end is not None
        assert math.isnan(end)
    assert curve_end("loss/total", curve([math.nan, *range(1, 11)])) == 5.5


def test_the_end_of_a_group_is_the_mean_of_its_runs_with_an_interval():
    end = mean_end("eval/accuracy", [curve([0, 0.5]), curve([0, 0.7]), curve([0, math.nan])])
    half_width = 12.7062 * 0.1 * math.sqrt(2) / math.sqrt(2)
    assert end == pytest.approx(
        {"n": 2, "mean": 0.6, "low": 0.6 - half_width, "high": 0.6 + half_width}, abs=1e-5
    )
