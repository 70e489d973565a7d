"""Labels of people against the diagnosis: counts and shares by hand."""

import pytest

from benchmarks.diagnosis.labels import Labelled, labelled_runs, scored

pytestmark = pytest.mark.nightly


def row(run, step, *labels):
    return {"run": run, "step": step, "labels": [{"label": label, "note": "", "by": "x"} for label in labels]}


def diagnosis(verdict, *causes, onset=None):
    return {"verdict": verdict, "causes": [{"cause": cause} for cause in causes], "onset": onset}


def test_labels_are_counted_by_run():
    rows = [
        row("b", 7, "hacked", "weird"),
        row("b", 3, "hacked"),
        row("b", 1, "good"),
        row("b", 2),
        row("a", 5, "good"),
    ]
    assert labelled_runs(rows) == [Labelled("a", 1, 0, None), Labelled("b", 3, 2, 3)]


def test_a_run_without_labels_is_left_out():
    assert labelled_runs([row("a", 1)]) == []


def test_named_hacking_is_counted_on_both_sides():
    diagnoses = {
        "a": diagnosis("healthy"),
        "b": diagnosis("collapsed", "update_size", "reward_hacking", onset={"healthy": 10, "sick": 20}),
        "c": diagnosis("declining", "update_size"),
    }
    text = scored(
        [Labelled("a", 1, 0, None), Labelled("b", 3, 2, 3), Labelled("c", 1, 1, 9)], diagnoses.__getitem__
    )
    assert "| b | 3 | 2 | 3 | collapsed | 2 | 10 to 20 |" in text
    assert "| c | 1 | 1 | 9 | declining | not named |  |" in text
    assert "in which reward hacking is named | 1 of 2 | 50% |" in text
    assert "in which it is named | 0 of 1 | 0% |" in text
