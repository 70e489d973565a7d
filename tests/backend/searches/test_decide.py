"""Objectives, the comparison over further seeds, and the words about it: by hand."""

import math

import numpy as np
import pytest

from backend.experiments.search_settings import SearchSettings
from backend.experiments.sweep import Sweep
from backend.metrics.series import Points
from backend.searches.comparison import compare
from backend.searches.decide import SearchRow
from backend.searches.objective import reports_of, value_of
from backend.searches.trial import RunRow, TrialRow


def points(values):
    return Points(np.array(sorted(values)), np.array([values[step] for step in sorted(values)], float))


def settings(**fields):
    return SearchSettings.model_validate(fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {10: 0.1, 20: 0.5, 30: 0.3}),
        ({"reading": "best"}, {10: 0.1, 20: 0.5, 30: 0.5}),
        ({"reading": "best", "direction": "minimize"}, {10: 0.1, 20: 0.1, 30: 0.1}),
        ({"reading": "mean_of_3"}, {10: 0.1, 20: 0.3, 30: 0.3}),
    ],
)
def test_evaluations_are_read_as_asked_and_the_one_before_training_is_left_out(fields, expected):
    found = reports_of(points({0: 0.9, 10: 0.1, 20: 0.5, 30: 0.3}), settings(**fields), 30)
    assert found == pytest.approx(expected)


def test_a_metric_of_training_is_averaged_over_ten_steps():
    found = reports_of(
        points({step: float(step) for step in range(1, 26)}), settings(metric="reward/mean"), 25
    )
    assert found == {10: 5.5, 20: 15.5, 25: 20.5}


@pytest.mark.parametrize("reading", ["final", "best", "mean_of_3"])
def test_values_that_are_not_finite_count_as_none(reading):
    bad = points({10: math.nan, 20: math.inf})
    found = reports_of(bad, settings(reading=reading), 20)
    assert all(math.isnan(value) for value in found.values())
    assert value_of(found) is value_of({}) is None


def search(seeds=(0, 1, 2, 3)):
    knobs = [{"path": "optimizer.lr", "values": [1e-4, 1e-3]}]
    sweep = Sweep.model_validate({"method": "search", "knobs": knobs})
    return SearchRow("e", "s", "finished", 0, {}, {"name": "grpo"}, sweep, seeds, {})


def finalist(number, first, further):
    name = f"c{number}"
    own = RunRow(f"{name}-0", name, name, 0, "finished", 40, reports={40: first})
    more = [
        RunRow(f"{name}-{seed}", name, name, seed, "finished", 40, reports={40: value})
        for seed, value in enumerate(further, start=1)
    ]
    return TrialRow(number, (number,), name, own, chosen=True), [own, *more]


def test_the_seed_that_chose_a_configuration_is_left_out_of_the_comparison():
    lucky, lucky_runs = finalist(0, 0.99, (0.50, 0.52, 0.54))
    steady, steady_runs = finalist(1, 0.70, (0.70, 0.72, 0.74))
    found = compare(search(), [lucky, steady], [*lucky_runs, *steady_runs])
    first, second = found.rows
    assert (first["variant"], first["n"], first["mean"]) == ("c1", 3, pytest.approx(0.72))
    assert first["low"] == pytest.approx(0.72 - 4.3026527 * 0.02 / math.sqrt(3))
    assert second["difference"] == pytest.approx(-0.2)
    assert found.verdict.startswith("c1: eval/accuracy 0.72 [0.67, 0.77] over 3 further seeds; no difference")


def test_a_difference_that_varies_little_is_shown():
    worse, worse_runs = finalist(0, 0.5, (0.50, 0.521, 0.54))
    better, better_runs = finalist(1, 0.5, (0.70, 0.72, 0.741))
    found = compare(search(), [worse, better], [*worse_runs, *better_runs])
    assert found.verdict.endswith("better than every other finalist.")


@pytest.mark.parametrize(("status", "verdict"), [("comparing", ""), ("stopped", " over 3 further seeds.")])
def test_nothing_is_claimed_before_all_seeds_have_ended(status, verdict):
    worse, worse_runs = finalist(0, 0.5, (0.50, 0.521, 0.54))
    better, better_runs = finalist(1, 0.5, (0.70, 0.72, 0.741))
    row = search()._replace(status=status)
    found = compare(row, [worse, better], [*worse_runs, *better_runs])
    assert found.verdict.endswith(verdict)
    assert "better" not in found.verdict


def test_a_comparison_without_values_says_nothing():
    trial, runs = finalist(0, 0.5, ())
    found = compare(search(), [trial], runs)
    assert ([row["n"] for row in found.rows], found.verdict) == ([0], "")
    assert compare(search(), [], []).rows == []
