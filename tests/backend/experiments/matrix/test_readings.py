"""Tests of the reduction of a curve to one number per run, against values computed by hand."""

import math

import numpy as np
import pytest

from backend.experiments.matrix import readings
from backend.experiments.matrix.readings import Column, best_value, sparkline, threshold_position
from backend.metrics.series import Curve


def curve(values, *, step_interval=1):
    steps = np.arange(1, len(values) + 1) * step_interval
    return Curve(steps, steps.astype(float), np.array(values, float))


def test_the_best_value_follows_the_direction():
    values = curve([3, math.nan, 9, 1, -math.inf])
    assert (best_value(values, "up"), best_value(values, "down"), best_value(values, "")) == (9, 1, None)


def test_the_area_is_the_mean_height():
    assert readings.mean_height(curve([0, 1, 2]), 3) == 1
    assert readings.mean_height(curve([0, 1, 2, 99]), 3) == 1
    uneven_curve = Curve(np.array([0, 1, 9]), np.array([0.0, 1, 9]), np.array([0.0, 0, 1]))
    assert readings.mean_height(uneven_curve, 9) == pytest.approx(4 / 9)
    height = readings.mean_height(curve([0, math.nan, 2]), 3)
    assert height is not None
    assert math.isnan(height)


def test_a_threshold_that_is_not_reached_has_no_value():
    accuracy = curve([0.1, 0.5, 0.6], step_interval=5)
    assert threshold_position(accuracy, accuracy.x, 0.5, "up", is_evaluation=True) == 10
    assert threshold_position(accuracy, accuracy.x, 0.7, "up", is_evaluation=True) is None
    assert threshold_position(accuracy, accuracy.x, 0.1, "down", is_evaluation=True) == 5


def test_one_lucky_step_of_training_does_not_reach_a_threshold():
    reward = curve([0, 1, *[0] * 20, *[1] * 10])
    assert threshold_position(reward, reward.x, 0.5, "up", is_evaluation=False) == 27


def test_a_sparkline_is_the_mean_of_the_available_curves():
    assert sparkline([curve([1, 2, 3]), curve([3, 4])]) == [2.0, 3.0, 3.0]
    assert len(sparkline([curve(range(500))])) == 40
    assert sparkline([curve([math.nan])]) == []


def test_thresholds_that_are_close_have_separate_columns():
    keys = [
        Column("eval/accuracy", "steps_to", threshold).key
        for threshold in (0.1234567, 0.1234568, 1234567, 0.5, 1.0)
    ]
    assert keys[0] == "eval/accuracy:steps_to:0.1234567"
    assert keys[3:] == ["eval/accuracy:steps_to:0.5", "eval/accuracy:steps_to:1"]
    assert len(set(keys)) == 5
