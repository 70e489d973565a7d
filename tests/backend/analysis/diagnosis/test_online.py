"""Tests of the diagnosis during training, which must agree with the diagnosis of the whole log."""

import numpy as np
import pytest

from backend.analysis.diagnosis.diagnose import diagnose
from backend.analysis.diagnosis.log import Log, Series
from backend.analysis.diagnosis.news import news, summarize_diagnosis
from backend.analysis.diagnosis.online import DIAGNOSIS_INTERVAL_STEPS, GrowingLog, is_due, last_due
from tests.backend.analysis.diagnosis.logs import change_series, healthy

COLLAPSE = change_series(
    change_series(healthy(), 70, policy__entropy=lambda values: values * 4),
    75,
    reward__accuracy=lambda values: values * 0.05,
)


def steps_with_metrics(log):
    """Yield each step with its metrics, as a trainer reports them."""
    last = max(int(series.steps[-1]) for series in log.series.values())
    for step in range(1, last + 1):
        indices_by_name = {name: np.flatnonzero(series.steps == step) for name, series in log.series.items()}
        yield (
            step,
            {
                name: float(log.series[name].values[indices[0]])
                for name, indices in indices_by_name.items()
                if len(indices)
            },
        )


def up_to(log, step):
    return Log({name: series.between(0, step) for name, series in log.series.items()}, log.config)


def test_a_growing_log_is_judged_like_the_complete_log():
    growing_log = GrowingLog({})
    for step, metrics in steps_with_metrics(COLLAPSE):
        growing_log.add_step(step, metrics | {"throughput/tokens_per_second": 1.0})
        if is_due(step):
            assert growing_log.diagnosis(up_to=step) == diagnose(up_to(COLLAPSE, step))
    assert growing_log.diagnosis(up_to=120).outcome.verdict == "collapsed"


def test_a_log_resumed_from_recorded_points_continues_like_an_uninterrupted_one():
    uninterrupted_log, resumed_log = GrowingLog({}), GrowingLog({}, up_to(COLLAPSE, 60).series)
    for step, metrics in steps_with_metrics(COLLAPSE):
        uninterrupted_log.add_step(step, metrics)
        if step > 60:
            resumed_log.add_step(step, metrics)
    for step in (60, 80, 120):
        assert resumed_log.diagnosis(up_to=step) == uninterrupted_log.diagnosis(up_to=step)


@pytest.mark.parametrize("count", [5_000, 5_001, 7_777, 10_000, 123_456])
def test_a_long_series_is_reduced_to_medians_of_equal_blocks(count):
    values = np.random.default_rng(count).normal(size=count)
    values[count // 2] = np.inf
    thinned_series = Series(np.arange(count), values).thinned()
    blocks = np.array_split(np.arange(count), 5_000)
    assert thinned_series.steps.tolist() == [steps[-1] for steps in blocks]
    expected = [np.median(values[steps]) if np.isfinite(values[steps]).all() else np.nan for steps in blocks]
    np.testing.assert_array_equal(thinned_series.values, values if count == 5_000 else expected)


def test_nonfinite_numbers_are_stored_unchanged():
    growing_log = GrowingLog({})
    for step, metrics in steps_with_metrics(COLLAPSE):
        growing_log.add_step(step, metrics | {"optim/grad_norm": float("nan") if step > 40 else 1.0})
    assert growing_log.diagnosis(up_to=120).causes[0].finding.cause == "non_finite"


def test_a_short_run_is_judged_every_ten_steps_and_a_long_one_every_fortieth_of_its_length():
    due = [step for step in range(100_001) if is_due(step)]
    assert due[:5] == [10, 20, 30, 40, 50]
    gaps = np.diff(due)
    assert gaps.max() <= 100_000 / 40 + DIAGNOSIS_INTERVAL_STEPS
    assert all(gap >= min(step // 80, DIAGNOSIS_INTERVAL_STEPS) for step, gap in zip(due, gaps, strict=False))


@pytest.mark.parametrize(("step", "expected"), [(0, 0), (9, 0), (10, 10), (19, 10), (805, 800), (819, 800)])
def test_the_last_step_at_which_a_run_was_judged(step, expected):
    assert last_due(step) == expected


def reported_events(log):
    """Return the kind and the word of every event that is reported while the log grows."""
    previous_diagnosis, events = None, []
    for step in range(DIAGNOSIS_INTERVAL_STEPS, 121, DIAGNOSIS_INTERVAL_STEPS):
        current_diagnosis = diagnose(up_to(log, step))
        lines = news(previous_diagnosis, current_diagnosis)
        events += [(line.kind, line.data.get("verdict") or line.data["warning"]) for line in lines]
        previous_diagnosis = current_diagnosis
    return events


def test_a_collapse_is_reported_once_with_verdict_cause_and_onset():
    assert [verdict for kind, verdict in reported_events(COLLAPSE) if kind == "verdict"] in (
        ["healthy", "collapsed"],
        ["healthy", "declining", "collapsed"],
    )
    line = summarize_diagnosis(diagnose(COLLAPSE))
    assert line.startswith("collapsed: Entropy exploded, between steps ")


def test_a_warning_is_reported_once_as_a_warning():
    log = change_series(healthy(), 70, policy__entropy=lambda values: values * 4)
    assert reported_events(log) == [("verdict", "healthy"), ("warning", "entropy_explosion")]
    previous_diagnosis, current_diagnosis = diagnose(up_to(log, 60)), diagnose(log)
    assert [line.message.split(",")[0] for line in news(previous_diagnosis, current_diagnosis)] == [
        "warning: Entropy exploded"
    ]


def test_too_few_points_report_nothing():
    assert news(None, diagnose(healthy(5))) == []


def test_consequences_of_a_fall_are_not_reported():
    log_with_consequences = change_series(COLLAPSE, 100, length__mean=lambda values: values * 3)
    assert news(diagnose(COLLAPSE), diagnose(log_with_consequences)) == []
