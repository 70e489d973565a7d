"""Tests of the numbers in a check before launch, by hand and against simulation."""

import numpy as np
import pytest

from backend.runs.check_report import CheckReport, ReferenceCheck, RewardProbe
from worker.training.check_numbers import make_findings, signal_chance


def test_the_share_of_groups_with_signal_is_counted_without_replacement():
    # With 1 right completion of 4, 3 of the 6 pairs contain it.
    estimate = signal_chance([(4, 1)], 2)
    assert (estimate.useful, estimate.error) == (pytest.approx(0.5), 0)
    assert signal_chance([(4, 0), (4, 4)], 2).useful == 0
    assert signal_chance([(4, 1)], 4).useful == 1


def test_the_estimate_is_unbiased():
    rng = np.random.default_rng(0)
    rates = rng.beta(0.5, 2, size=4000)
    counts = [(32, int(correct_count)) for correct_count in rng.binomial(32, rates)]
    for size in (4, 8, 16, 32):
        expected = np.mean(1 - rates**size - (1 - rates) ** size)
        estimate = signal_chance(counts, size)
        assert estimate.useful == pytest.approx(expected, abs=4 * estimate.error)


def test_groups_larger_than_the_sample_and_single_completions_are_not_estimated():
    assert signal_chance([(8, 4)], 16) is None
    assert signal_chance([(8, 4)], 1) is None
    assert signal_chance([], 8) is None


def test_below_the_silent_rate_most_groups_of_a_problem_are_all_wrong():
    estimate = signal_chance([(16, 1), (16, 8)], 8)
    assert (1 - estimate.silent_below) ** 8 == pytest.approx(0.5)
    assert estimate.silent == 0.5


def report(**changes):
    references = {"checked": 9, "missing": 0, "wrong": 0, "examples": [], "reward": 1.0}
    fields = {
        "prompts": 2, "completions": 16, "pass_rate": 0.28, "pass_rate_error": 0.2, "never_solved": 0.0,
        "always_solved": 0.0, "truncated": 0.0, "group_size": 8, "reward": 0.3, "reward_right": 1.0,
        "signal": [signal_chance([(16, 1), (16, 8)], size) for size in (4, 8, 16)],
        "references": ReferenceCheck(**(references | changes.pop("references", {}))),
        "probes": changes.pop("probes", []), "findings": [],
    }  # fmt: skip
    return CheckReport(**(fields | changes))


def list_findings(checked, failure=""):
    return [
        (finding.level, finding.text)
        for finding in make_findings(checked, max_new_tokens=64, failure=failure)
    ]


@pytest.mark.parametrize(
    ("changes", "level", "phrase"),
    [
        ({"references": {"wrong": 2}}, "bad", "calls 2 of 9 reference answers wrong"),
        ({"references": {"reward": 0.1}}, "warn", "earn 0.1, less than an average attempt (0.3)"),
        ({"references": {"checked": 0, "missing": 9}}, "warn", "9 of 9 prompts have no reference answer"),
        ({"truncated": 0.4}, "warn", "40% of the completions are truncated at sampling.max_new_tokens = 64"),
        (
            {"signal": [signal_chance([(16, 1), (16, 0)], size) for size in (4, 8, 16)]},
            "warn",
            "(pass rate 28%; 100% have a pass rate below 8.3%); take easier ones, or groups of 16 (50%)",
        ),
        (
            {"signal": [signal_chance([(16, 16), (16, 16)], 8)], "pass_rate": 1.0},
            "bad",
            "the problems are too easy (pass rate 100%)",
        ),
        ({"pass_rate": None}, "warn", "the pass rate is unknown"),
    ],
)
def test_problems_are_reported_with_their_numbers(changes, level, phrase):
    levels_and_texts = list_findings(report(**changes))
    assert levels_and_texts[0][0] == level
    assert phrase in levels_and_texts[0][1]


@pytest.mark.parametrize(
    ("reward", "level", "phrase"),
    [
        (0.3, "good", "No text without work"),
        (0.4, "warn", "more than an average"),
        (1.0, "bad", "no less than"),
    ],
)
def test_a_text_that_is_rewarded_without_work_is_named(reward, level, phrase):
    probe = RewardProbe(name="empty", title="An empty text", example="", reward=reward)
    levels_and_texts = list_findings(report(probes=[probe]))
    assert [
        (finding_level, text)
        for finding_level, text in levels_and_texts
        if phrase in text and finding_level == level
    ]
