"""Metrics of suites: hand-checked majorities, closed forms, and the coverage of the intervals."""

import math

import numpy as np
import pytest

from worker.training.step_metrics import pass_at_k
from worker.training.suite_metrics import (
    Graded,
    chosen_ks,
    maj_at_k,
    passing_ks,
    score_intervals,
    suite_metrics,
)


def generator(seed=0):
    return np.random.default_rng(seed)


def voted(*answers, right="7"):
    """A prompt whose completions gave these answers; None: no answer."""
    return Graded([answer == right for answer in answers], answers)


def test_powers_of_two_and_n_are_measured():
    assert chosen_ks(1) == []
    assert chosen_ks(2) == [2]
    assert chosen_ks(6) == [2, 4, 6]
    assert chosen_ks(8) == [2, 4, 8]


def test_pass_at_k_runs_through_every_k_up_to_64():
    assert passing_ks(1) == []
    assert passing_ks(6) == [2, 3, 4, 5, 6]
    assert passing_ks(200) == [*range(2, 65), 128, 200]
    graded = [Graded([True] + [False] * 5, [None] * 6), Graded([False] * 6, [None] * 6)]
    metrics = suite_metrics(graded, seed=0)
    for k in range(2, 7):  # one right of six: a subset of k holds it with k / 6
        assert metrics[f"pass_at_{k}"] == pytest.approx(k / 6 / 2)
    assert "maj_at_3" not in metrics


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (("7", "7", "3", "4"), 1.0),
        (("7", "3", "3", "4"), 0.0),
        (("7", "7", "3", "3"), 1 / 2),
        (("7", "3", "4", "5"), 1 / 4),
        ((None, None, None, "7"), 1.0),
        ((None, None, None, None), 0.0),
        (("7", None, "3", "3"), 0.0),
    ],
)
def test_the_majority_of_all_completions_is_exact(answers, expected):
    assert maj_at_k(voted(*answers), len(answers), generator()) == expected


def test_the_majority_of_fewer_completions_approaches_its_expectation():
    prompt = voted("7", "7", "3", "3", "3", "4")
    subsets = math.comb(6, 3)
    # Of the 20 subsets: {7,7,x}: 4 right; {3,3,x}: 9 wrong, {3,3,3}: 1 wrong; {7,3,4}: 6 of a third each.
    exact = (4 + 6 / 3) / subsets
    average = np.mean([maj_at_k(prompt, 3, generator(seed)) for seed in range(40)])
    assert average == pytest.approx(exact, abs=0.01)


def test_the_majority_of_two_is_the_accuracy_where_everybody_votes():
    prompt = voted("7", "7", "3", "4", "5", "7")
    assert np.mean([maj_at_k(prompt, 2, generator(seed)) for seed in range(60)]) == pytest.approx(
        0.5, abs=0.01
    )


def test_pass_at_k_is_the_expectation_over_all_subsets_and_unbiased_under_simulation():
    chance, n, k = 0.3, 8, 4
    rights = generator().binomial(n, chance, size=20_000)
    assert np.mean([pass_at_k(n, right, k=k) for right in rights]) == pytest.approx(
        1 - (1 - chance) ** k, abs=0.01
    )


def test_the_interval_of_rights_and_wrongs_is_wilsons():
    """30 of 30: from 30 / (30 + t^2) to 1 with Student's t of 29 degrees of freedom, 2.045."""
    (low,), (high,) = score_intervals(np.ones((1, 30)))
    assert (low, high) == (pytest.approx(30 / (30 + 2.0452**2), abs=1e-5), 1)
    (low,), (high,) = score_intervals(np.array([[1.0] * 60 + [0.0] * 140]))
    assert (low, high) == (pytest.approx(0.2407, abs=5e-4), pytest.approx(0.3670, abs=5e-4))


@pytest.mark.parametrize("prompts", [10, 30, 100, 500])
@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_the_interval_holds_the_true_value_in_95_of_100_sets(prompts, k):
    """Also at the ceiling: the mean of pass@8 over the rates of Beta(2, 1) is .978."""
    chance = generator(prompts)
    rates = chance.beta(2, 1, size=(500, prompts))
    rights = chance.binomial(16, rates)
    passes = np.array([pass_at_k(16, right, k=k) for right in range(17)])[rights]
    low, high = score_intervals(passes)
    truth = 1 - 2 / ((k + 1) * (k + 2))  # the mean of (1 - p)^k is 2 B(2, k + 1)
    assert np.mean((low <= truth) & (high >= truth)) > 0.92  # 3 standard errors


def test_an_interval_stays_between_0_and_1_and_a_single_prompt_has_none():
    (low,), (high,) = score_intervals(np.array([[0.25]]))
    assert low == high == 0.25
    (low,), (high,) = score_intervals(np.array([[0.0] * 29 + [1.0]]))
    assert 0 < low < 1 / 30 < high < 1


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not():
    graded = [voted("7", "3", "7", "4"), voted("3", "3", "4", "7"), voted("7", "7", "7", "7")] * 10
    assert suite_metrics(graded, seed=5) == suite_metrics(graded, seed=5)
    assert suite_metrics(graded, seed=5) != suite_metrics(graded, seed=6)


def test_every_metric_of_a_suite():
    metrics = suite_metrics([voted("7", "7", "3", "3"), voted("3", "4", "5", "6")], seed=0)
    assert metrics["accuracy"] == 0.25
    assert metrics["pass_at_2"] == pytest.approx((1 - 1 / 6) / 2)
    assert metrics["pass_at_4"] == 0.5
    assert metrics["maj_at_4"] == 0.25
    assert (metrics["prompts"], metrics["n"]) == (2, 4)
    assert metrics["accuracy_low"] <= 0.25 <= metrics["accuracy_high"]
    assert suite_metrics([], seed=0) == {}
