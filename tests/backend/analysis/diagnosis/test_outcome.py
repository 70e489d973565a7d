"""Tests of the verdict on the goal: collapsed, recovered, declining, never learned or inconclusive."""

import numpy as np
import pytest

from backend.analysis.diagnosis.judge import judge
from backend.analysis.diagnosis.log import Log, Series
from backend.analysis.diagnosis.smoothing import noise, running_median, trailing_mean, window_for
from tests.backend.analysis.diagnosis.logs import change_series, healthy, learning, series


def judge_values(values, **metrics):
    return judge(
        Log(
            {"reward/accuracy": series(values)}
            | {name: series(metric_values) for name, metric_values in metrics.items()}
        )
    )


def test_a_run_that_learns_and_stays_level_is_healthy():
    assert {judge(healthy(seed=seed)).verdict for seed in range(20)} == {"healthy"}


def test_a_fall_that_lasts_is_a_collapse_with_its_step():
    for seed in range(20):
        log = change_series(healthy(seed=seed), 80, reward__accuracy=lambda values: values * 0.1)
        outcome = judge(log)
        assert outcome.verdict == "collapsed", seed
        assert outcome.onset.healthy <= 80 <= outcome.onset.sick + 1, seed
        assert outcome.onset.sick - outcome.onset.healthy <= 5, seed


def test_a_fall_that_recovers_is_recovered():
    values = learning(150, noise=0.02)
    values[80:95] = 0.02
    assert judge_values(values).verdict == "recovered"


def test_a_slow_loss_of_a_third_is_declining():
    values = learning(150, noise=0.02)
    values[70:] -= np.linspace(0, 0.22, 80)
    assert judge_values(values).verdict == "declining"


def test_a_run_that_stays_at_its_start_never_learned():
    values = 0.1 + np.random.default_rng(0).normal(0, 0.02, 100)
    assert judge_values(values).verdict == "never_learned"


def test_a_run_that_began_at_the_top_has_nothing_to_learn():
    assert judge_values(0.97 + np.random.default_rng(0).normal(0, 0.01, 100)).verdict == "healthy"


@pytest.mark.parametrize("count", [0, 1, 3, 11])
def test_too_few_points_are_inconclusive(count):
    outcome = judge_values(np.zeros(count))
    assert outcome.verdict == "inconclusive"
    assert str(count) in outcome.note or count == 0


def test_without_accuracy_and_reward_there_is_no_verdict():
    outcome = judge(Log({"loss/total": series(np.zeros(100)), "ratio/mean": series(np.ones(100))}))
    assert (outcome.verdict, outcome.note) == ("inconclusive", "no accuracy and no reward")


@pytest.mark.parametrize(
    ("evaluated", "verdict"), [([0.2, 0.4, 0.6, 0.8], "healthy"), ([0.4, 0.4, 0.4, 0.4], "never_learned")]
)
def test_a_verdict_by_evaluations_alone_has_their_numbers(evaluated, verdict):
    few_points = {"reward/accuracy": series([0.1, 0.2, 0.3]), "eval/accuracy": series(evaluated)}
    outcome = judge(Log(few_points))
    assert (outcome.verdict, outcome.goal, outcome.end) == (verdict, "eval/accuracy", evaluated[-1])
    assert np.isfinite(outcome.best)


def test_held_out_accuracy_that_falls_alone_is_a_collapse():
    values = learning(100)
    evaluations = Series(
        np.arange(0, 101, 10), np.array([0.2, 0.4, 0.5, 0.6, 0.6, 0.6, 0.3, 0.1, 0.1, 0.1, 0.1])
    )
    outcome = judge(Log({"reward/accuracy": series(values), "eval/accuracy": evaluations}))
    assert (outcome.verdict, outcome.goal) == ("collapsed", "eval/accuracy")
    assert outcome.onset == (50, 60)


def test_a_training_goal_that_falls_alone_notes_that_held_out_accuracy_has_not():
    log = change_series(healthy(count=100), 60, reward__accuracy=np.zeros_like)
    evaluations = Series(np.arange(0, 101, 10), np.minimum(0.6, 0.2 + np.arange(11) * 0.1))
    outcome = judge(Log({**log.series, "eval/accuracy": evaluations}))
    assert (outcome.verdict, outcome.note) == ("collapsed", "the held-out accuracy has not fallen")


def test_a_negative_reward_is_judged_above_its_lowest_value():
    values = -2 + 3 * learning(120)
    assert judge(Log({"reward/mean": series(values)})).verdict == "healthy"
    values[70:] = -2
    assert judge(Log({"reward/mean": series(values)})).verdict == "collapsed"


def test_one_noisy_prompt_per_step_is_not_a_collapse():
    verdicts = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        accuracies = np.minimum(0.6, 0.2 + np.arange(400) * 0.003)
        verdicts.append(judge_values(rng.binomial(8, accuracies) / 8).verdict)
    assert verdicts.count("healthy") >= 49


@pytest.mark.parametrize("form", ["shuffled", "reversed"])
def test_series_without_a_collapse_rarely_raise_an_alarm(form):
    alarms = 0
    for seed in range(100):
        values = learning(150, noise=0.08, seed=seed)
        plateau = values[60:]
        rng = np.random.default_rng(1000 + seed)
        series = rng.permutation(plateau) if form == "shuffled" else plateau[::-1]
        alarms += judge_values(series).verdict in {"collapsed", "declining", "recovered"}
    assert alarms <= 2


def test_irregular_steps_change_nothing_but_the_steps():
    values = learning(120)
    values[80:] = 0.02
    steps = np.cumsum(np.random.default_rng(3).integers(1, 9, 120))
    outcome = judge(Log({"reward/accuracy": series(values, steps)}))
    assert outcome.verdict == "collapsed"
    assert outcome.onset.healthy <= steps[80] <= outcome.onset.sick + 9


def test_noise_is_measured_between_steps_and_not_from_the_trend():
    rng = np.random.default_rng(0)
    assert noise(rng.normal(0, 0.1, 5000)) == pytest.approx(0.1, rel=0.05)
    assert noise(np.linspace(0, 100, 5000) + rng.normal(0, 0.1, 5000)) == pytest.approx(0.1, rel=0.05)
    assert noise(np.zeros(10)) == 0.0


def test_the_window_has_a_standard_error_of_a_twentieth():
    assert window_for(0.1, scale=1.0, count=1000) == 4
    assert window_for(0.4, scale=1.0, count=1000) == 64
    assert window_for(0.4, scale=1.0, count=80) == 10
    assert window_for(0.0, scale=1.0, count=5) == 3
    for sigma in (1e300, np.inf, np.nan):  # of a log with absurd numbers
        assert window_for(sigma, scale=5e-324, count=80) == 10


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("huge", [1e300, 1.7e308, 5e-324])
def test_absurd_numbers_have_a_verdict(huge):
    values = np.tile([huge, -huge, 0.0, huge / 2], 20)
    assert judge_values(values, **{"eval/accuracy": values, "policy/entropy": values}).verdict


def test_means_and_medians_accept_fewer_points_at_the_start():
    values = np.array([4.0, 2.0, 9.0, 1.0])
    assert trailing_mean(values, 2).tolist() == [4.0, 3.0, 5.5, 5.0]
    assert running_median(values, 3).tolist() == [4.0, 3.0, 4.0, 2.0]
    assert running_median(values[:2], 5).tolist() == [4.0, 3.0]


def test_a_lucky_first_step_is_not_an_early_collapse():
    for seed in range(20):
        values = np.random.default_rng(seed).binomial(64, 0.2, 60) / 64
        values[0] = 0.34  # two and a half standard errors of 64 completions of 8 prompts
        assert judge(Log({"reward/accuracy": series(values)})).verdict != "collapsed", seed


def test_evaluations_in_random_order_are_not_a_decline_while_training_is_stable():
    """The policy learns and its evaluations are shuffled, so that the low first one comes second to last."""
    evaluations = np.array([0.6, 0.58, 0.35, 0.62, 0.55, 0.59, 0.2, 0.4])
    log = Log(
        {
            "reward/accuracy": series(learning(80, best=0.55)),
            "eval/accuracy": Series(np.arange(10, 81, 10), evaluations),
        }
    )
    assert judge(log).verdict in {"healthy", "inconclusive"}
    falls = np.where(np.arange(80) < 50, 0.55, 0.25) + np.random.default_rng(0).normal(0, 0.03, 80)
    outcome_after_fall = judge(Log({**log.series, "reward/accuracy": series(falls)}))
    assert outcome_after_fall.verdict in {"collapsed", "declining"}


def log_of_one_prompt(seed, *, fall_at=None, rate_after_fall=0.02, count=400, group=8):
    """Return accuracies with one easy or hard prompt per step, so that answers of a group are correlated."""
    rng = np.random.default_rng(seed)
    rate = np.minimum(0.6, 0.2 + np.arange(count) * 0.003)
    if fall_at is not None:
        rate[fall_at:] = rate_after_fall
    rates = rng.beta(rate * 2, (1 - rate) * 2)  # correlation of 1 / 3 within a group
    return rng.binomial(group, rates) / group


def test_a_collapse_is_found_with_one_prompt_per_step():
    outcomes = [judge_values(log_of_one_prompt(seed, fall_at=250)) for seed in range(40)]
    assert sum(outcome.verdict == "collapsed" for outcome in outcomes) >= 38
    onset_errors = [outcome.onset.healthy - 250 for outcome in outcomes if outcome.verdict == "collapsed"]
    assert abs(np.median(onset_errors)) <= 25
    healthy_ones = [judge_values(log_of_one_prompt(seed)).verdict for seed in range(40)]
    assert sum(verdict in {"collapsed", "declining", "recovered"} for verdict in healthy_ones) <= 1
