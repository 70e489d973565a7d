"""Tests of search objectives, the comparison over additional seeds, and its wording, by hand."""

import math

import numpy as np
import pytest

from backend.experiments.search_settings import SearchSettings
from backend.experiments.searches.comparison import compare
from backend.experiments.searches.decide import SearchRow
from backend.experiments.searches.objective import final_value, make_reports
from backend.experiments.searches.trial import RunRow, TrialRow
from backend.experiments.sweep import Sweep
from backend.metrics.series import Points


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
def test_evaluations_are_read_as_configured_without_the_one_before_training(fields, expected):
    reports = make_reports(points({0: 0.9, 10: 0.1, 20: 0.5, 30: 0.3}), settings(**fields), 30)
    assert reports == pytest.approx(expected)


def test_a_training_metric_is_averaged_over_ten_steps():
    reports = make_reports(
        points({step: float(step) for step in range(1, 26)}), settings(metric="reward/mean"), 25
    )
    assert reports == {10: 5.5, 20: 15.5, 25: 20.5}


@pytest.mark.parametrize("reading", ["final", "best", "mean_of_3"])
def test_nonfinite_values_count_as_missing(reading):
    nonfinite_points = points({10: math.nan, 20: math.inf})
    reports = make_reports(nonfinite_points, settings(reading=reading), 20)
    assert all(math.isnan(report) for report in reports.values())
    assert final_value(reports) is final_value({}) is None


def search(seeds=(0, 1, 2, 3)):
    knobs = [{"path": "optimizer.lr", "values": [1e-4, 1e-3]}]
    sweep = Sweep.model_validate({"method": "search", "knobs": knobs})
    return SearchRow("e", "s", "finished", 0, {}, {"name": "grpo"}, sweep, seeds, {})


def finalist(number, first, other_values):
    name = f"c{number}"
    first_run = RunRow(f"{name}-0", name, name, 0, "finished", 40, reports={40: first})
    additional_runs = [
        RunRow(f"{name}-{seed}", name, name, seed, "finished", 40, reports={40: value})
        for seed, value in enumerate(other_values, start=1)
    ]
    return TrialRow(number, (number,), name, first_run, chosen=True), [first_run, *additional_runs]


def test_the_seed_that_chose_a_configuration_is_excluded_from_the_comparison():
    lucky_finalist, lucky_runs = finalist(0, 0.99, (0.50, 0.52, 0.54))
    steady_finalist, steady_runs = finalist(1, 0.70, (0.70, 0.72, 0.74))
    comparison = compare(search(), [lucky_finalist, steady_finalist], [*lucky_runs, *steady_runs])
    first, second = comparison.rows
    assert (first["variant"], first["n"], first["mean"]) == ("c1", 3, pytest.approx(0.72))
    assert first["low"] == pytest.approx(0.72 - 4.3026527 * 0.02 / math.sqrt(3))
    assert second["difference"] == pytest.approx(-0.2)
    assert comparison.verdict.startswith(
        "c1: eval/accuracy 0.72 [0.67, 0.77] over 3 remaining seeds; no difference"
    )


def test_p_values_are_corrected_over_all_pairs_of_finalists():
    finalists = [
        finalist(0, 0.5, (0.50, 0.52, 0.54)),
        finalist(1, 0.5, (0.51, 0.50, 0.56)),
        finalist(2, 0.5, (0.70, 0.72, 0.741)),
    ]
    trials, runs = (
        [trial for trial, _ in finalists],
        [run for _, runs_of_trial in finalists for run in runs_of_trial],
    )
    first, second, third = compare(search(), trials, runs).rows
    assert [row["variant"] for row in (first, second, third)] == ["c2", "c1", "c0"]
    # Differences to c2: -.2, -.2, -.201, the smallest of three p-values; t = 601 with 2 degrees of freedom.
    assert third["p"] == pytest.approx(3 * 2 * (1 - 601 / math.sqrt(601**2 + 2)) / 2, rel=1e-3)
    assert (first["paired"], second["paired"], third["paired"]) == (None, True, True)


def test_finalists_with_too_few_shared_seeds_are_compared_unpaired():
    first_trial, one_runs = finalist(0, 0.5, (0.50, 0.52, math.nan))
    second_trial, other_runs = finalist(1, 0.5, (math.nan, 0.70, 0.72))
    _, second = compare(search(), [first_trial, second_trial], [*one_runs, *other_runs]).rows
    assert (second["variant"], second["paired"], second["difference"]) == ("c0", False, pytest.approx(-0.2))


def test_a_first_place_that_is_worse_on_shared_seeds_is_not_called_better():
    lucky_finalist, lucky_runs = finalist(0, 0.5, (0.50, 0.51, 0.52, 0.99))
    steady_finalist, steady_runs = finalist(1, 0.5, (0.60, 0.611, 0.62, math.nan))
    comparison = compare(
        search(seeds=(0, 1, 2, 3, 4)), [lucky_finalist, steady_finalist], [*lucky_runs, *steady_runs]
    )
    assert comparison.rows[0]["variant"] == "c0"
    assert comparison.verdict.endswith("over 4 remaining seeds; on the seeds that they share, c1 did better.")


@pytest.mark.parametrize(("status", "verdict"), [("comparing", ""), ("stopped", " over 3 remaining seeds.")])
def test_nothing_is_claimed_before_all_seeds_have_ended(status, verdict):
    worse_finalist, worse_runs = finalist(0, 0.5, (0.50, 0.521, 0.54))
    better_finalist, better_runs = finalist(1, 0.5, (0.70, 0.72, 0.741))
    row = search()._replace(status=status)
    comparison = compare(row, [worse_finalist, better_finalist], [*worse_runs, *better_runs])
    assert comparison.verdict.endswith(verdict)
    assert "better" not in comparison.verdict
