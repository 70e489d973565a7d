"""Outcomes of claims: two tests that no interval can escape, paired by seed."""

import numpy as np
import pytest

from benchmarks.evidence.claim import Expectation
from benchmarks.evidence.outcome import outcomes

pytestmark = pytest.mark.nightly

SEEDS = range(100, 116)


def expectation(margin=0.05):
    return Expectation(measure="held-out accuracy", higher="x", lower="y", margin=margin)


def values(mean, spread, seed=0):
    noise = np.random.default_rng(seed).normal(size=len(SEEDS))
    noise = (noise - noise.mean()) / noise.std()
    return {seed: mean + spread * float(z) for seed, z in zip(SEEDS, noise, strict=True)}


def word(higher, lower, margin=0.05):
    (found,) = outcomes([(expectation(margin), higher, lower)])
    return found and found.word


FLAT = values(0.5, 0.0)


@pytest.mark.parametrize(
    ("mean", "spread", "margin", "expected"),
    [
        (0.60, 0.02, 0.05, "reproduced"),
        (0.50, 0.02, 0.05, "refuted"),
        (0.40, 0.02, 0.05, "refuted"),
        (0.52, 0.10, 0.05, "undecided"),
        (0.52, 0.01, 0.05, "reproduced"),
        (0.50, 0.02, -0.05, "reproduced"),
        (0.40, 0.02, -0.05, "refuted"),
        (0.48, 0.10, -0.05, "undecided"),
    ],
)
def test_a_difference_is_tested_against_none_and_against_the_smallest_that_matters(
    mean, spread, margin, expected
):
    assert word(values(mean, spread), FLAT, margin) == expected


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("margin", [0.05, -0.05])
def test_an_interval_narrower_than_the_margin_always_decides(seed, margin):
    mean = 0.5 + np.random.default_rng(seed).uniform(-0.1, 0.1)
    assert word(values(mean, 0.04, seed), FLAT, margin) != "undecided"


def test_what_all_seeds_share_cancels_out():
    shared = values(0.5, 0.2, seed=1)
    better = {seed: value + 0.03 + 0.001 * (seed % 2) for seed, value in shared.items()}
    (found,) = outcomes([(expectation(), better, shared)])
    assert (found.word, found.found.paired, found.found.n) == ("reproduced", True, 16)


def test_an_undecided_claim_says_how_many_seeds_make_its_interval_narrow_enough():
    (found,) = outcomes([(expectation(), values(0.52, 0.10), FLAT)])
    # 2 t(n - 1) 0.103 / sqrt(n) <= 0.05
    assert found.seeds == 68


def test_claims_are_corrected_together():
    close = values(0.5 + 0.0552, 0.1)
    alone = outcomes([(expectation(), close, FLAT)])
    many = outcomes([(expectation(), close, FLAT)] * 3)
    assert alone[0].word == "reproduced"
    assert {one.word for one in many} == {"undecided"}


def test_a_side_without_runs_has_no_outcome():
    assert word({}, FLAT) is None
