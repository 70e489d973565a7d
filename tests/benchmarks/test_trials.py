"""The record of the trials: its table follows from it, and its figures from its counts."""

import pytest

from backend.experiments.trials.fisher import fisher
from benchmarks.trials.__main__ import CASES, RESULTS, recorded, report

pytestmark = pytest.mark.nightly


def test_the_table_is_that_of_the_record():
    assert RESULTS.read_text(encoding="utf-8") == report(recorded()) + "\n"
    assert recorded().keys() <= {case.name for case in CASES}


@pytest.mark.parametrize("name", recorded())
def test_counts_and_p_of_a_recorded_trial_belong_together(name):
    trial = recorded()[name]
    control, *arms = trial["verdict"]["arms"]
    for arm in (control, *arms):
        ends = ("waiting", "recurred", "spared", "unjudged", "failed", "stopped", "deleted")
        assert sum(arm[end] for end in ends) == arm["planned"] == len(trial["seeds"])
    for arm in arms:
        counts = [n for each in (arm, control) for n in (each["recurred"], each["recurred"] + each["spared"])]
        assert arm["p"] == pytest.approx(fisher(*counts))
