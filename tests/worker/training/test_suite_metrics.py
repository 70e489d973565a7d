"""Tests of suite metrics: majorities by hand, closed forms, and the coverage of intervals."""

import numpy as np
import pytest

from worker.training.step_metrics import pass_at_k
from worker.training.suite_metrics import (
    GradedPrompt,
    maj_at_k,
    score_intervals,
    suite_metrics,
)


def generator(seed=0):
    return np.random.default_rng(seed)


def grade_votes(*answers, correct_answer="7"):
    """Return a prompt whose completions gave these answers, where None means no answer."""
    return GradedPrompt([answer == correct_answer for answer in answers], answers)


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
    assert maj_at_k(grade_votes(*answers), len(answers), generator()) == expected


def test_pass_at_k_is_the_expectation_over_all_subsets_and_unbiased_under_simulation():
    probability, sample_size, draws = 0.3, 8, 4
    right_counts = generator().binomial(sample_size, probability, size=20_000)
    assert np.mean(
        [pass_at_k(sample_size, right_count, k=draws) for right_count in right_counts]
    ) == pytest.approx(1 - (1 - probability) ** draws, abs=0.01)


def test_the_interval_of_right_and_wrong_is_a_wilson_interval():
    """For 30 of 30 it runs from 30 / (30 + t^2) to 1, with Student's t of 29 degrees of freedom, 2.045."""
    (low,), (high,) = score_intervals(np.ones((1, 30)))
    assert (low, high) == (pytest.approx(30 / (30 + 2.0452**2), abs=1e-5), 1)
    (low,), (high,) = score_intervals(np.array([[1.0] * 60 + [0.0] * 140]))
    assert (low, high) == (pytest.approx(0.2407, abs=5e-4), pytest.approx(0.3670, abs=5e-4))


@pytest.mark.parametrize("prompts", [10, 30, 100, 500])
@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_the_interval_covers_the_true_value_in_95_of_100_sets(prompts, k):
    """This also holds near the ceiling: the mean of pass@8 over rates from Beta(2, 1) is .978."""
    rng = generator(prompts)
    rates = rng.beta(2, 1, size=(500, prompts))
    right_counts = rng.binomial(16, rates)
    passes = np.array([pass_at_k(16, right_count, k=k) for right_count in range(17)])[right_counts]
    low, high = score_intervals(passes)
    truth = 1 - 2 / ((k + 1) * (k + 2))  # the mean of (1 - p)^k is 2 B(2, k + 1)
    assert np.mean((low <= truth) & (high >= truth)) > 0.92  # 3 standard errors


def test_a_suite_has_every_metric():
    metrics = suite_metrics([grade_votes("7", "7", "3", "3"), grade_votes("3", "4", "5", "6")], seed=0)
    assert metrics["accuracy"] == 0.25
    assert metrics["pass_at_2"] == pytest.approx((1 - 1 / 6) / 2)
    assert metrics["pass_at_4"] == 0.5
    assert metrics["maj_at_4"] == 0.25
    assert (metrics["prompts"], metrics["n"]) == (2, 4)
    assert metrics["accuracy_low"] <= 0.25 <= metrics["accuracy_high"]
    assert suite_metrics([], seed=0) == {}
