"""The recorded runs of the evidence: they can be trained again, and stand beside what comes of it."""

import pytest

from backend.config.merge import resolve
from benchmarks.evidence.__main__ import first_seeds, recorded, table

pytestmark = pytest.mark.nightly


def test_every_recorded_run_can_be_launched_today():
    for run in recorded():
        assert resolve(run["asked"]["base"], run["asked"]["variant"], run["seed"]).steps > 0


def test_the_first_seeds_are_chosen_claim_by_claim():
    runs = [{"claim": claim, "seed": seed} for claim, seed in [("a", 0), ("a", 1), ("b", 7), ("b", 9)]]
    assert list(first_seeds(runs, 1)) == [runs[0], runs[2]]
    assert list(first_seeds(runs, None)) == runs


def test_the_table_has_the_recorded_accuracy_beside_that_of_today():
    settings = {"base": {}, "variant": {}, "preset": {}}
    old = settings | {"base": {"preset": "grpo"}, "preset": {"steps": 1}}
    results = [
        (
            {"claim": "a", "variant": "x", "asked": settings, "series": {"eval/accuracy": [0.2, 0.5, None]}},
            0.6,
        ),
        ({"claim": "a", "variant": "x", "asked": settings, "series": {"eval/accuracy": [0.2, 0.7]}}, 0.8),
        ({"claim": "b", "variant": "y", "asked": old, "series": {"eval/accuracy": [0.1]}}, 0.1),
    ]
    lines = table(results).splitlines()
    assert lines[2] == "| a | x | 2 | 60.0% | 70.0% |  |"
    assert lines[3] == "| b | y | 1 | 10.0% | 10.0% | its preset has changed since |"
