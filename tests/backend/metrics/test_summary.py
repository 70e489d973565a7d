import math

from backend.metrics.summary import Summary


def test_last_keeps_metrics_that_are_not_logged_every_step():
    summary = Summary()
    summary.add_step(0, {"eval/accuracy": 0.5})
    summary.add_step(1, {"loss/total": 0.0})
    assert summary.document()["step"] == 1
    assert summary.document()["last"] == {"eval/accuracy": 0.5, "loss/total": 0.0}


def test_best_follows_the_direction_of_the_catalog():
    summary = Summary()
    for step, (accuracy, truncated) in enumerate([(0.5, 0.2), (0.7, 0.4), (0.7, 0.1)]):
        summary.add_step(step, {"eval/accuracy": accuracy, "length/truncated_frac": truncated})
    best = summary.document()["best"]
    assert best == {
        "eval/accuracy": {"value": 0.7, "step": 1},
        "length/truncated_frac": {"value": 0.1, "step": 2},
    }


def test_a_metric_without_direction_has_no_best():
    summary = Summary()
    summary.add_step(1, {"loss/total": 1.0})
    assert summary.document()["best"] == {}


def test_nonfinite_values_are_spelled_out_and_never_best():
    summary = Summary()
    summary.add_step(1, {"reward/mean": math.inf, "loss/total": math.nan, "eval/accuracy": -math.inf})
    assert summary.document()["last"] == {
        "reward/mean": "Infinity",
        "loss/total": "NaN",
        "eval/accuracy": "-Infinity",
    }
    assert summary.document()["best"] == {}


def test_a_value_of_an_earlier_step_is_returned_with_its_step():
    summary = Summary()
    summary.add_step(0, {"eval/accuracy": 0.5, "loss/total": 1.0})
    assert "older" not in summary.document()
    summary.add_step(4, {"loss/total": 0.0})
    assert summary.document()["older"] == {"eval/accuracy": 0}
    continued_summary = Summary.read(summary.document())
    continued_summary.add_step(5, {"loss/total": 0.0})
    assert continued_summary.document()["older"] == {"eval/accuracy": 0}
    continued_summary.add_step(6, {"eval/accuracy": 0.6, "loss/total": 0.0})
    assert "older" not in continued_summary.document()
