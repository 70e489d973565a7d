"""Tests of the diagnosis of other trainers' logs with unusual noise, units, drifts or rounding."""

import numpy as np
import pytest

from backend.analysis.diagnosis.diagnose import diagnose
from backend.analysis.diagnosis.judge import judge
from backend.analysis.diagnosis.log import Log, Series
from backend.analysis.diagnosis.significance import fall_p_value, rise_p_value
from tests.backend.analysis.diagnosis.logs import series, steady

FALLEN_VERDICTS = {"collapsed", "declining", "recovered"}


def reward(count=150, *, fall_at=None, seed=0):
    """Return a reward that rises to 0.7 and is almost zero from `fall_at` on."""
    values = np.minimum(0.7, 0.2 + np.arange(count) * 0.01) + np.random.default_rng(seed).normal(
        0, 0.04, count
    )
    if fall_at is not None:
        values[fall_at:] = 0.02
    return values


def rising_from(count, first_step, *, low, high, steps=20):
    """Return a metric that climbs from one level to another within `steps` steps."""
    return low + (high - low) * np.clip((np.arange(count) - first_step) / steps, 0, 1)


def findings(log):
    diagnosis = diagnose(log)
    return {
        finding.cause: finding
        for finding in [cause.finding for cause in diagnosis.causes] + list(diagnosis.warnings)
    }


def test_p_values_of_series_without_order_are_uniform_and_those_of_a_fall_are_small():
    rng = np.random.default_rng(0)
    for draws in (rng.normal(0, 1, (60, 60)), (rng.random((60, 60)) < 0.06) * 1.0):
        p_values = [test(values) for values in draws for test in (fall_p_value, rise_p_value)]
        assert np.mean(np.array(p_values) <= 0.1) <= 0.2
    assert fall_p_value(reward(fall_at=100)) == 1 / 500
    assert rise_p_value(reward()) == 1 / 500
    assert fall_p_value(np.ones(50)) == 1.0
    assert fall_p_value(np.append(1.0, np.zeros(120))) > 0.05  # one significant spike, outside whole blocks


def test_a_shuffled_collapse_and_a_sparse_reward_are_no_alarm():
    alarms = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        for values in (rng.permutation(reward(fall_at=70)), (rng.random(150) < 0.05) * 1.0):
            alarms += judge(Log({"reward/mean": series(values)})).verdict in FALLEN_VERDICTS
    assert alarms <= 3


def test_the_bound_for_a_run_that_never_learned_shrinks_with_its_length():
    bounds = []
    for count in (400, 2000):
        values = 0.4 + np.random.default_rng(count).normal(0, 0.05, count)
        outcome = judge(Log({"reward/mean": series(values)}))
        assert outcome.verdict == "never_learned"
        bounds.append(float(outcome.note.split(" at most ")[1].split()[0]))
    assert bounds[1] < bounds[0] < 0.05


@pytest.mark.parametrize("count", [100, 500, 2000])
def test_a_run_that_learns_within_its_first_steps_has_learned(count):
    for seed in range(5):
        chance = np.random.default_rng(seed)
        values = 0.6 / (1 + np.exp(-(np.arange(count) - 6) / 2)) + chance.normal(0, 0.08, count)
        assert judge(Log({"reward/mean": series(values)})).verdict == "healthy"


def test_accuracies_in_percent_have_the_verdict_of_fractions_in_their_own_unit():
    falling_values = np.array([0.1, 0.4, 0.55, 0.6, 0.6, 0.35, 0.2, 0.12, 0.1])
    outcomes = [
        judge(
            Log(
                {
                    "reward/mean": series(reward(90)),
                    "eval/accuracy": Series(np.arange(10, 91, 10), falling_values * unit),
                }
            )
        )
        for unit in (1, 100)
    ]
    assert [outcome.verdict for outcome in outcomes] == ["collapsed", "collapsed"]
    assert outcomes[1].onset == outcomes[0].onset
    assert outcomes[1].best == pytest.approx(100 * outcomes[0].best)


def test_the_evaluation_set_that_fell_is_the_finding():
    steady_values, falling_values = (
        np.full(10, 0.5),
        np.array([0.6, 0.6, 0.61, 0.6, 0.58, 0.4, 0.25, 0.2, 0.2, 0.2]),
    )
    steps = np.arange(10, 101, 10)
    sets = {
        "eval/accuracy/aime": Series(steps, steady_values),
        "eval/accuracy/gsm8k": Series(steps, falling_values),
    }
    outcome = judge(Log({"reward/mean": series(reward(100))} | sets))
    assert (outcome.verdict, outcome.goal) == ("collapsed", "eval/accuracy/gsm8k")


def test_the_settling_of_the_first_steps_is_not_a_signal():
    entropy = np.where(np.arange(150) < 6, 1.3 - 0.2 * np.arange(150), 0.15) + rising_from(
        150, 70, low=0, high=8
    )
    diagnosis = diagnose(Log({"reward/mean": series(reward(fall_at=85)), "policy/entropy": series(entropy)}))
    assert diagnosis.first_signals == ("policy/entropy",)
    assert 66 <= diagnosis.onset.healthy <= diagnosis.onset.sick <= 77


def test_a_slow_drift_begins_where_it_is_halfway_and_its_largest_value_has_its_step():
    kl = np.linspace(0.002, 0.1, 300) + rising_from(300, 220, low=0, high=2, steps=60)
    finding = findings(Log({"reward/mean": series(reward(300, fall_at=270)), "kl/k3": series(kl)}))[
        "kl_runaway"
    ]
    assert 200 <= finding.onset.healthy <= finding.onset.sick <= 240
    assert "reached 2.1 at step" in finding.evidence[0]


def test_a_kl_that_grows_slowly_while_the_run_learns_is_not_a_warning():
    kl = np.linspace(0.002, 0.12, 300)
    assert findings(Log({"reward/mean": series(reward(300)), "kl/k3": series(kl)})) == {}


def test_gradients_of_zero_are_not_a_baseline():
    norm = np.where(np.arange(150) % 3 == 0, 0.2, 0.0)
    assert findings(Log({"reward/mean": series(reward()), "optim/grad_norm": series(norm)})) == {}


def test_longer_answers_without_truncation_are_not_a_finding():
    length = np.linspace(300, 2600, 150)
    log = {"reward/mean": series(reward()), "length/mean": series(length)}
    assert findings(Log(log)) == {}
    assert findings(Log(log | {"length/truncated_frac": series(np.full(150, 0.02))})) == {}


def test_completions_that_are_all_truncated_are_named_from_step_1():
    log = Log({"reward/mean": series(steady(80, 0.2)), "length/truncated_frac": series(np.ones(80))})
    diagnosis = diagnose(log)
    assert diagnosis.outcome.verdict == "never_learned"
    assert [cause.finding.title for cause in diagnosis.causes] == ["Completions are truncated from the start"]


def test_truncation_comes_first_if_all_completions_are_truncated_and_the_reward_is_zero():
    log = Log({"reward/mean": series(np.zeros(40)), "length/truncated_frac": series(np.ones(40))})
    assert [cause.finding.cause for cause in diagnose(log).causes] == ["length_blowup", "verifier"]


@pytest.mark.parametrize("name", ["length/truncated_frac", "groups/zero_variance_frac"])
def test_a_run_that_cannot_learn_and_shows_no_learning_never_learned(name):
    rng = np.random.default_rng(2)
    noisy = {"reward/mean": series(0.02 + rng.normal(0, 0.01, 60))}
    assert judge(Log(noisy)).verdict == "inconclusive"
    assert diagnose(Log(noisy | {name: series(np.full(60, 0.97))})).outcome.verdict == "never_learned"


def test_a_reward_that_rises_while_evaluations_fall_does_not_prove_hacking():
    steps = np.arange(0, 150, 10)
    evaluations = Series(steps, np.where(steps < 80, 0.5, 0.1))
    log = Log({"reward/mean": series(reward()), "eval/accuracy": evaluations})
    assert findings(log)["reward_hacking"].tier == "consistent"


def test_a_learning_rate_printed_as_zero_does_not_mean_a_dead_run():
    log = {"reward/mean": series(steady(80, 0.3)), "optim/lr": series(np.zeros(80))}
    assert "dead_run" not in findings(Log(log))
    assert "dead_run" in findings(Log(log, {"optimizer": {"lr": 0.0}}))


def test_a_nonfinite_last_gradient_is_a_warning_unless_it_ended_the_run():
    norm = np.append(steady(99, 0.5), np.nan)
    values = {"reward/mean": series(reward(100)), "optim/grad_norm": series(norm)}
    assert diagnose(Log(values)).outcome.verdict == "healthy"
    assert "non_finite" in findings(Log(values))
    assert diagnose(Log(values, status="failed")).outcome.verdict == "collapsed"
    always_nonfinite = values | {"optim/grad_norm": series(np.full(100, np.nan))}
    assert (
        diagnose(Log(always_nonfinite)).outcome.verdict == "healthy"
    )  # the run learned: only the norm is not finite
    flat_series = always_nonfinite | {"reward/mean": series(steady(100, 0.2))}
    assert diagnose(Log(flat_series)).outcome.verdict == "collapsed"


def test_figures_of_a_negative_reward_are_unchanged():
    values = reward(fall_at=100) - 1
    outcome = judge(Log({"reward/mean": series(values)}))
    assert outcome.verdict == "collapsed"
    assert outcome.best == pytest.approx(-0.3, abs=0.05)
    assert outcome.end == pytest.approx(-0.98, abs=0.01)


def test_the_fall_comes_after_the_best_value():
    for seed in range(20):
        outcome = judge(Log({"reward/mean": series(reward(200, fall_at=115, seed=seed))}))
        assert outcome.best_step <= outcome.onset.sick
        assert outcome.onset.healthy <= 116, seed
        assert outcome.onset.sick >= 115, seed


def test_a_term_that_pays_more_while_held_out_accuracy_falls_is_hacked():
    count = 200
    rng = np.random.default_rng(0)
    format_term = np.where(np.arange(count) < 100, 0.5, 0.95) + rng.normal(0, 0.05, count)
    accuracy_values = np.where(np.arange(count) < 100, 0.6, 0.2) + rng.normal(0, 0.05, count)
    evaluations = Series(
        np.arange(20, 201, 20), np.array([0.55, 0.56, 0.55, 0.56, 0.55, 0.2, 0.2, 0.15, 0.1, 0.1])
    )
    log = Log(
        {
            "reward/mean": series(format_term + accuracy_values),
            "reward/format_reward/mean": series(format_term),
            "eval/accuracy": evaluations,
        }
    )
    finding = findings(log)["reward_hacking"]
    assert any("reward/format_reward/mean rose from 0.5" in sentence for sentence in finding.evidence)


@pytest.mark.parametrize("trainer", ["trl", "verl", "csv"])
def test_a_remedy_for_another_trainer_names_its_settings_or_none_of_ours(trainer):
    entropy = np.full(150, 0.3) + rising_from(150, 70, low=0, high=5)
    log = Log({"reward/mean": series(reward(fall_at=85)), "policy/entropy": series(entropy)}, trainer=trainer)
    (cause,) = [cause for cause in diagnose(log).causes if not cause.explained_by]
    names = {"trl": "`learning_rate`", "verl": "`actor.entropy_coeff`", "csv": "learning rate"}
    assert names[trainer] in cause.remedy.words
    assert cause.remedy.changes == {}


def test_clipping_of_most_tokens_before_a_fall_means_that_batches_serve_too_many_updates():
    clipped = rising_from(150, 98, low=0.1, high=0.95, steps=10)
    kl_old = rising_from(150, 98, low=0.05, high=5, steps=10)
    length = 400 - rising_from(150, 100, low=0, high=380, steps=10)
    log = Log({
        "reward/mean": series(reward(fall_at=106)), "clip/frac": series(clipped), "kl/old": series(kl_old),
        "length/mean": series(length),
    })  # fmt: skip
    causes = diagnose(log).causes
    assert [(cause.finding.cause, cause.explained_by) for cause in causes] == [
        ("staleness", ""), ("length_collapse", "staleness"),
    ]  # fmt: skip
    assert "batches serve several updates" in causes[0].finding.evidence[1]


def test_entropy_of_nearly_random_text_explains_why_nothing_was_learned():
    entropies = {"untrained": 10.8, "usual": 1.2}
    never_right = series(np.where(np.arange(150) % 40 == 7, 0.05, 0.0))
    causes = {
        name: [
            cause.finding.cause
            for cause in diagnose(
                Log({"reward/accuracy": never_right, "policy/entropy": series(np.full(150, entropy))})
            ).causes
        ]
        for name, entropy in entropies.items()
    }
    assert "entropy_explosion" in causes["untrained"]
    assert "entropy_explosion" not in causes["usual"]


def test_two_points_at_zero_are_too_few_for_a_fall_and_the_note_says_so():
    values = np.append(0.3 - 0.26 * np.exp(-np.arange(39) / 4), [0.0, 0.0])
    outcome = judge(Log({"reward/mean": series(values + np.random.default_rng(0).normal(0, 0.01, 41))}))
    assert (outcome.verdict, outcome.note) == (
        "inconclusive", "the last points are far below the best, but too few to tell a fall from noise",
    )  # fmt: skip


FALL_OF_TEN_POINTS = [0.70, 0.71, 0.70, 0.72, 0.71, 0.40, 0.28, 0.22, 0.12, 0.10]


def test_ten_points_show_a_fall_but_cannot_exclude_a_rise():
    assert judge(Log({"reward/mean": series(FALL_OF_TEN_POINTS)})).verdict == "collapsed"
    assert judge(Log({"reward/mean": series(np.tile([0.5, 0.501], 5))})).verdict == "inconclusive"
    assert judge(Log({"reward/mean": series(np.tile([0.5, 0.501], 6))})).verdict == "never_learned"


DOUBTFUL_VALUES = [0.30, 0.40, 0.44, 0.53, 0.64, 0.69, 0.79, 0.80, 0.55, 0.50, 0.52]


def test_a_run_that_may_have_fallen_is_not_called_healthy():
    outcome = judge(Log({"reward/mean": series(DOUBTFUL_VALUES)}))
    assert (outcome.verdict, "far below" in outcome.note) == ("inconclusive", True)


def test_a_fall_of_the_first_steps_that_lasts_is_a_decline():
    values = np.append([1.56, 1.63, 1.67, 1.6], 1.1 + 0.05 * np.sin(np.arange(16)))
    outcome = judge(Log({"reward/mean": series(values)}))
    assert (outcome.verdict, outcome.onset) == ("declining", (4, 5))


def test_a_reward_at_every_step_dates_a_fall_that_rare_evaluations_show():
    evaluations = series([0.1, 0.3, 0.4, 0.45, *[0.5] * 8, 0.1, 0.05, 0.0, 0.0], np.arange(16) * 10)
    outcome = judge(Log({"reward/mean": series(reward(160, fall_at=116)), "eval/accuracy": evaluations}))
    assert (outcome.verdict in FALLEN_VERDICTS, outcome.goal) == (True, "eval/accuracy")
    assert 110 <= outcome.onset.healthy <= 117 <= outcome.onset.sick <= 125


@pytest.mark.parametrize(("first", "last"), [(0.2, 0.7), (0.95, 0.95)])
def test_a_penalised_reward_that_falls_is_no_fall_if_evaluations_rise_or_stay(first, last):
    evaluations = series(np.linspace(first, last, 22), np.arange(22) * 7)
    penalised_reward = series(np.linspace(0.9, 0.1, 150) + np.random.default_rng(0).normal(0, 0.03, 150))
    assert judge(Log({"reward/mean": penalised_reward, "eval/accuracy": evaluations})).verdict == "healthy"


@pytest.mark.parametrize("count", [15, 16, 18, 20, 24])
def test_a_clear_fall_of_few_points_is_found_at_every_length(count):
    values = np.where(np.arange(count) < count // 2, 0.7, 0.1)
    noise = np.random.default_rng(count).normal(0, 0.03, count)
    assert judge(Log({"reward/mean": series(values + noise)})).verdict == "collapsed"


def test_a_standing_fault_does_not_turn_doubt_into_never_learned():
    log = Log({"reward/mean": series(DOUBTFUL_VALUES), "length/truncated_frac": series(np.full(11, 0.95))})
    assert diagnose(log).outcome.verdict == "inconclusive"


def test_points_twenty_steps_apart_do_not_accuse_the_verifier():
    steps = np.arange(1, 11) * 20
    log = Log(
        {"reward/mean": series(FALL_OF_TEN_POINTS, steps), "length/mean": series(np.full(10, 50), steps)}
    )
    assert "verifier" not in findings(log)


def test_rewards_without_deviation_are_no_signal():
    values = np.tile([6.5, -1.5], 10)
    diagnosis = diagnose(Log({"reward/mean": series(values), "reward/std": series(np.zeros(20))}))
    assert [cause.finding.cause for cause in diagnosis.causes] == ["vanishing_signal"]
