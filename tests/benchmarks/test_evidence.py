"""The tables of the learning evidence and the parity check: settings that exist, arithmetic that is right."""

import json

import pytest

from backend.config.merge import resolve
from backend.config.objective import Objective
from backend.metrics.statistics import spread
from benchmarks.evidence import store
from benchmarks.evidence.claim import Expectation, Measure
from benchmarks.evidence.claims import CLAIMS
from benchmarks.evidence.first_round import FIRST
from benchmarks.evidence.pilots import PILOTS
from benchmarks.evidence.results import value_of, verdict
from benchmarks.evidence.second_round import SECOND
from benchmarks.parity.cases import CASES, DIFFERENT, every_combination

pytestmark = pytest.mark.nightly

VARIANTS = [(key, variant) for key, claim in CLAIMS.items() for variant in claim.variants]


@pytest.mark.parametrize(("key", "variant"), VARIANTS)
def test_every_variant_of_every_claim_can_be_launched(key, variant):
    base, changes = json.loads(json.dumps([CLAIMS[key].base, CLAIMS[key].variants[variant]]))
    assert resolve(base, changes, 0).steps > 0


@pytest.mark.parametrize("key", CLAIMS)
def test_a_claim_expects_something_of_what_it_measures_and_varies(key):
    claim = CLAIMS[key]
    for expected in claim.expects:
        assert {expected.higher, expected.lower} <= set(claim.variants)
        assert expected.measure in {measure.title for measure in claim.measures}


def test_the_second_round_asks_expectations_of_the_first_again_and_twice_only_with_new_seeds():
    asked: dict[str, list[str]] = {}
    for claim_key, claim in SECOND.items():
        for expected in claim.expects:
            asked.setdefault(expected.asks_again, []).append(claim_key)
    assert asked
    for keys in asked.values():
        seeds = [{one.seed for one in store.wanted(key)} for key in keys]
        assert sum(map(len, seeds)) == len(set().union(*seeds))
    for name in asked:
        key, place = name.split()
        again, first = next(
            (one, FIRST[key].expects[int(place) - 1])
            for claim in SECOND.values()
            for one in claim.expects
            if one.asks_again == name
        )
        assert again.margin != 0
        assert first.measure.split(",")[0] in again.measure


def test_no_run_counts_twice():
    seeds = {
        name: {one.seed for key in claims for one in store.wanted(key)}
        for name, claims in {"first": FIRST, "second": SECOND, "pilots": PILOTS}.items()
    }
    assert not seeds["first"] & seeds["second"]
    assert not seeds["second"] & seeds["pilots"]


def test_the_record_of_runs_comes_back_as_it_was_written(tmp_path, monkeypatch):
    results = dict(list(store.recorded().items())[:3])
    monkeypatch.setattr(store, "RUNS", tmp_path / "runs.jsonl.zst")
    store.write(results)
    assert store.recorded.__wrapped__() == results


def test_every_pair_of_the_parity_check_is_an_objective():
    for case in (*CASES, *DIFFERENT, *every_combination()):
        assert Objective.model_validate(case.ours)


RUN = {
    "series": {
        "tokens/total": [None, 100.0, 200.0, 400.0],
        "eval/accuracy": [0.25, None, 0.5, 1.0],
        "policy/entropy": [None, 1.0, "NaN", 2.0],
    }
}


@pytest.mark.parametrize(("tokens", "accuracy"), [(0, 0.25), (100, 0.375), (300, 0.75), (400, 1.0)])
def test_a_value_at_some_tokens_lies_on_the_line_between_two_evaluations(tokens, accuracy):
    assert value_of(RUN, Measure(title="", metric="eval/accuracy", how="at_tokens"), tokens) == accuracy


def test_first_and_last_are_the_recorded_ones_and_nan_stays_nan():
    first, last, mean = (
        Measure(title="", metric="policy/entropy", how=how) for how in ("first", "last", "mean")
    )
    assert (value_of(RUN, first, 0), value_of(RUN, last, 0)) == (1.0, 2.0)
    assert str(value_of(RUN, mean, 0)) == "nan"


@pytest.mark.parametrize(
    ("higher", "lower", "words"),
    [
        ([3, 3.1, 3.2], [1, 1.1, 1.2], "**reproduced**"),
        ([1, 1.1, 1.2], [3, 3.1, 3.2], "**refuted**"),
        ([1, 2, 3], [1.1, 2.1, 3.1], "**undecided**"),
        ([1], [1, 2], "not enough"),
    ],
)
def test_a_verdict_needs_an_interval_that_leaves_zero_out(higher, lower, words):
    claim = CLAIMS["a"]
    table = {"x": {"entropy": spread(higher)}, "y": {"entropy": spread(lower)}}
    assert words in verdict(claim, Expectation(measure="entropy", higher="x", lower="y"), table)
