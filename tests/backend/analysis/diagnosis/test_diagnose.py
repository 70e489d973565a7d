"""Tests of the detection of causes: each one alone, before its consequences, and only with evidence."""

from typing import Any, get_args

import numpy as np
import pytest

from backend.analysis.diagnosis.detectors import DETECTORS
from backend.analysis.diagnosis.diagnose import CAUSE_ORDER, CONSEQUENCES, diagnose
from backend.analysis.diagnosis.log import METRICS as READ_METRICS
from backend.analysis.diagnosis.log import Log, Series
from backend.analysis.diagnosis.remedies import REMEDIES, remedy_for
from backend.analysis.diagnosis.signs import TITLES
from backend.config.causes import Cause
from backend.config.metrics import METRICS
from backend.config.run import RunConfig
from tests.backend.analysis.diagnosis.logs import change_series, healthy, series, steady


def times(factor):
    return lambda values: values * factor


def becomes(value):
    return lambda values: np.full_like(values, value)


FALLS = {"reward__accuracy": times(0.05)}


def log_with_changes(from_step=70, count=120, seed=0, **changes):
    """Return a run whose goal falls five steps after the changes."""
    log = healthy(count, seed=seed)
    return change_series(change_series(log, from_step, **changes), from_step + 5, **FALLS)


@pytest.mark.parametrize(
    ("cause", "changes"),
    [
        ("update_size", {"optim__lr": times(30), "policy__entropy": times(4)}),
        ("update_size", {"optim__grad_norm": times(20)}),
        ("entropy_explosion", {"policy__entropy": times(4)}),
        ("entropy_collapse", {"policy__entropy": times(0.05), "groups__zero_variance_frac": becomes(0.95)}),
        ("length_blowup", {"length__mean": times(2.5)}),
        ("length_collapse", {"length__mean": times(0.2)}),
        ("kl_runaway", {"kl__k3": times(50)}),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_a_planted_change_is_the_first_cause_with_its_onset(cause, changes, seed):
    diagnosis = diagnose(log_with_changes(seed=seed, **changes))
    assert diagnosis.outcome.verdict == "collapsed"
    assert diagnosis.causes[0].finding.cause == cause
    assert diagnosis.onset.healthy <= 70 <= diagnosis.onset.sick + 1
    assert diagnosis.onset.sick - diagnosis.onset.healthy <= 5


def test_a_goal_that_drops_within_a_step_while_the_policy_stays_is_the_verifier():
    diagnosis = diagnose(change_series(healthy(), 70, reward__accuracy=becomes(0.0)))
    assert [cause.finding.cause for cause in diagnosis.causes][:1] == ["verifier"]
    assert diagnosis.onset.healthy <= 70 <= diagnosis.onset.sick


def test_the_verifier_is_not_blamed_without_metrics_of_the_policy():
    log = change_series(healthy(), 70, reward__accuracy=becomes(0.0))
    diagnosis = diagnose(Log({"reward/accuracy": log.series["reward/accuracy"]}))
    assert diagnosis.outcome.verdict == "collapsed"
    assert diagnosis.causes == ()
    assert "verifier" in {detector.cause for detector in diagnosis.unjudged}


def test_training_problems_always_wrong_while_held_out_ones_are_solved_point_to_the_verifier():
    log = healthy(count=60)
    diagnosis = diagnose(
        Log(
            {
                **log.series,
                "reward/accuracy": series(np.full(60, 0.01) + steady(60, 0.002)),
                "eval/accuracy": Series(
                    np.arange(0, 61, 10), np.array([0.2, 0.22, 0.2, 0.21, 0.2, 0.22, 0.21])
                ),
            }
        )
    )
    assert (diagnosis.outcome.verdict, diagnosis.causes[0].finding.cause) == ("never_learned", "verifier")


def test_metrics_that_stay_nonfinite_are_the_first_cause():
    diagnosis = diagnose(
        change_series(log_with_changes(policy__entropy=times(4)), 60, optim__grad_norm=becomes(np.nan))
    )
    assert diagnosis.causes[0].finding.cause == "non_finite"
    assert {cause.explained_by for cause in diagnosis.causes[1:]} == {"non_finite"}
    assert diagnosis.onset.sick == 61


def test_a_single_spike_is_not_a_finding():
    log = healthy()
    for metric in ("policy/entropy", "optim/grad_norm", "kl/k3", "length/mean"):
        values = log.series[metric].values.copy()
        values[70:72] *= 30
        log = Log({**log.series, metric: Series(log.series[metric].steps, values)})
    diagnosis = diagnose(log)
    assert (diagnosis.outcome.verdict, diagnosis.causes, diagnosis.warnings) == ("healthy", (), ())


def test_a_change_without_a_fall_of_the_goal_is_a_warning():
    diagnosis = diagnose(change_series(healthy(), 70, policy__entropy=times(4)))
    assert diagnosis.outcome.verdict == "healthy"
    assert (diagnosis.causes, diagnosis.onset) == ((), None)
    assert [warning.cause for warning in diagnosis.warnings] == ["entropy_explosion"]


def test_a_change_after_the_fall_is_not_its_cause():
    log = change_series(change_series(healthy(), 60, **FALLS), 90, length__mean=times(3))
    diagnosis = diagnose(log)
    assert "length_blowup" not in {cause.finding.cause for cause in diagnosis.causes}
    assert "length_blowup" in {warning.cause for warning in diagnosis.warnings}


def test_a_loss_of_0_a_ratio_of_1_and_no_kl_are_not_evidence():
    log = healthy()
    constant_series = {"loss/total": series(np.zeros(120)), "ratio/mean": series(np.ones(120))}
    diagnosis = diagnose(
        Log({name: curve for name, curve in log.series.items() if name != "kl/k3"} | constant_series)
    )
    assert (diagnosis.outcome.verdict, diagnosis.warnings) == ("healthy", ())
    assert "kl_runaway" in {detector.cause for detector in diagnosis.unjudged}


def test_a_metric_with_too_few_values_is_not_called_missing():
    log = healthy()
    short_series = {"policy/lift_right": Series(np.array([10, 20]), np.array([0.1, 0.2]))}
    needs_by_cause = {
        detector.cause: detector.needs for detector in diagnose(Log(log.series | short_series)).unjudged
    }
    assert needs_by_cause["displacement"] == "values of policy/lift_right: it has only 2, and 4 are needed"
    assert needs_by_cause["mismatch"] == "log-probabilities of the sampler (mismatch/k3)"


def test_a_rate_of_0_and_equal_evaluations_are_a_dead_run():
    count = 80
    rng = np.random.default_rng(0)
    diagnosis = diagnose(
        Log(
            {
                "reward/accuracy": series(rng.binomial(64, 0.2, count) / 64),
                "eval/accuracy": Series(np.arange(0, 81, 10), np.full(9, 0.2)),
                "optim/lr": series(np.zeros(count)),
                "loss/total": series(np.zeros(count)),
            }
        )
    )
    assert diagnosis.outcome.verdict == "never_learned"
    assert diagnosis.causes[0].finding.cause == "dead_run"
    assert any(
        "all 9 evaluations gave exactly 0.2" in sentence for sentence in diagnosis.causes[0].finding.evidence
    )


def test_a_loss_term_that_appears_mid_run_is_detected_from_its_first_step():
    log = log_with_changes(policy__entropy=times(4))
    term = Series(np.arange(71, 121), np.full(50, -0.5))
    diagnosis = diagnose(Log({**log.series, "loss/entropy": term}))
    assert diagnosis.causes[0].finding.metrics[0] == "loss/entropy"
    assert diagnosis.onset == (70, 71)


def test_every_cause_has_a_text():
    assert DETECTORS.keys() == TITLES.keys() == REMEDIES.keys() == CAUSE_ORDER.keys()
    assert CONSEQUENCES.keys() <= DETECTORS.keys()
    assert set().union(*CONSEQUENCES.values()) <= DETECTORS.keys()


def test_every_metric_that_is_read_is_in_the_catalog():
    catalog_names = METRICS.keys() | {"reward/correctness/mean"}
    assert set(READ_METRICS) <= catalog_names


@pytest.mark.parametrize("cause", REMEDIES)
def test_a_remedy_is_a_config_that_the_service_accepts(cause):
    from backend.config.merge import merge

    config = RunConfig.model_validate({"objective": {"kl": {"type": "k1", "coef": 0.1}}}).model_dump(
        mode="json"
    )
    changes = remedy_for(cause, Log({}, config), {}, is_first=True).changes
    merged_config = config
    for path, setting in changes.items():
        nested: Any = setting
        for key in reversed(path.split(".")):
            nested = {key: nested}
        merged_config = merge(merged_config, nested)
    RunConfig.model_validate(merged_config)


def test_a_foreign_log_gets_no_config_changes():
    assert remedy_for("update_size", Log({}), {}, is_first=True).changes == {}


@pytest.mark.parametrize(
    "values", [np.zeros(50), np.full(50, np.nan), np.full(50, np.inf), np.array([1.0]), np.zeros(0)]
)
def test_diagnosis_accepts_any_single_metric(values):
    for metric in METRICS:
        log = Log({metric: series(values)})
        verdict = diagnose(log).outcome.verdict
        assert verdict in {"inconclusive", "never_learned", "collapsed", "healthy"}, metric


def test_a_config_of_another_trainer_gets_none_of_our_settings():
    log = Log({"reward/mean": series(np.zeros(50))}, {"sampling": "x"})
    assert log.setting("sampling.group_size") is None


def log_with_text_metrics(count=120):
    """Return a healthy log with metrics that only this service logs."""
    return healthy(
        count,
        **{
            "text/repetition": steady(count, 0.05),
            "text/compression": steady(count, 0.8),
            "text/structure_ok": steady(count, 0.9),
            "text/structure_broken": steady(count, 0.05),
            "text/structure_polluted": np.zeros(count),
            "text/unusual_script_frac": np.zeros(count),
            "optim/kl_share": steady(count, 0.02),
            "loss/kl": steady(count, 0.001),
            "reward/unearned_share": steady(count, 0.05),
        },
    )


@pytest.mark.parametrize(
    ("cause", "changes"),
    [
        ("repetition", {"text__repetition": becomes(0.9)}),
        ("repetition", {"text__compression": times(0.1)}),
        ("broken_format", {"text__structure_broken": becomes(0.6)}),
        ("broken_format", {"text__structure_ok": times(0.1)}),
        ("language_mix", {"text__unusual_script_frac": becomes(0.5)}),
        ("kl_pull", {"loss__kl": times(50), "optim__kl_share": becomes(0.95)}),
        ("reward_hacking", {"reward__unearned_share": becomes(0.8)}),
    ],
)
def test_a_change_of_the_texts_or_of_the_kl_term_is_the_cause(cause, changes):
    log = change_series(change_series(log_with_text_metrics(), 70, **changes), 75, **FALLS)
    if cause == "reward_hacking":
        log = Log({**log.series, "reward/mean": series(steady(120, 0.5))})
    diagnosis = diagnose(log)
    assert diagnosis.causes[0].finding.cause == cause
    assert diagnosis.onset.healthy <= 70 <= diagnosis.onset.sick + 1


def test_a_kl_term_that_steers_from_the_first_step_has_no_onset_of_its_own():
    log_with_pull = change_series(log_with_text_metrics(), 0, optim__kl_share=becomes(0.9))
    diagnosis = diagnose(change_series(log_with_pull, 75, **FALLS))
    assert diagnosis.causes[0].finding.cause == "kl_pull"
    assert "90% of the gradient" in diagnosis.causes[0].finding.evidence[0]


def test_a_step_without_signal_is_ignored_by_the_kl_detector():
    """If no group has signal, the KL term contributes the whole gradient, a share of exactly 1."""
    diagnosis = diagnose(
        change_series(change_series(log_with_text_metrics(), 0, optim__kl_share=becomes(1.0)), 75, **FALLS)
    )
    assert "kl_pull" not in {cause.finding.cause for cause in diagnosis.causes}


def test_right_answers_that_become_less_likely_are_the_cause():
    log = log_with_text_metrics()
    every_tenth = np.arange(10, 121, 10)
    lift = Series(every_tenth, np.where(every_tenth <= 50, 0.02, -0.05))
    diagnosis = diagnose(change_series(Log({**log.series, "policy/lift_right": lift}), 100, **FALLS))
    assert diagnosis.causes[0].finding.cause == "displacement"
    steady_lift = Series(every_tenth, np.full(12, 0.02))
    diagnosis = diagnose(change_series(Log({**log.series, "policy/lift_right": steady_lift}), 100, **FALLS))
    assert "displacement" not in {cause.finding.cause for cause in diagnosis.causes}


def test_weights_that_do_not_move_have_not_learned_whatever_the_noise_hides():
    accuracy = series(0.3 + np.random.default_rng(1).normal(0, 0.12, 60))
    noisy = Log({"reward/accuracy": accuracy, "optim/lr": series(np.full(60, 3e-4))})
    assert diagnose(noisy).outcome.verdict == "inconclusive"
    diagnosis = diagnose(Log({**noisy.series, "optim/update_norm": series(np.zeros(60))}))
    assert (diagnosis.outcome.verdict, diagnosis.causes[0].finding.cause) == ("never_learned", "dead_run")


def test_a_policy_that_its_first_updates_broke_has_updates_that_are_too_large():
    count = 40
    goal = np.where(np.arange(count) < 1, 0.4, 0.001)
    entropy = np.where(np.arange(count) < 1, 0.2, 3.0)
    log = Log(
        {
            "reward/accuracy": series(goal),
            "policy/entropy": series(entropy),
            "optim/grad_norm": series(steady(count, 0.5)),
        },
        {"sampling": {"prompts_per_step": 16, "group_size": 8}},
    )
    diagnosis = diagnose(log)
    assert (diagnosis.outcome.verdict, diagnosis.outcome.note) == ("collapsed", "within its first steps")
    assert diagnosis.causes[0].finding.cause == "update_size"
    assert diagnosis.onset == (1, 2)


def test_a_kl_term_that_begins_before_the_gradients_grow_explains_them():
    changes = {"loss__kl": times(80)}
    log = change_series(change_series(log_with_text_metrics(), 70, **changes), 74, optim__grad_norm=times(20))
    diagnosis = diagnose(change_series(log, 78, **FALLS))
    assert diagnosis.causes[0].finding.cause == "kl_pull"
    assert (
        next(cause for cause in diagnosis.causes if cause.finding.cause == "update_size").explained_by
        == "kl_pull"
    )


def test_every_cause_of_the_config_has_a_detector_and_a_title():
    assert set(get_args(Cause)) == set(DETECTORS) == set(TITLES)


@pytest.mark.parametrize("seed", range(8))
def test_arbitrary_numbers_are_judged_with_evidence(seed):
    rng = np.random.default_rng(seed)
    values = np.array([np.nan, np.inf, -np.inf, 9e307, -9e307, 1e-308, 0.0, 0.5, 1.0])
    log = Log({metric: series(rng.choice(values, 60)) for metric in METRICS})
    diagnosis = diagnose(log)
    for finding in (*(cause.finding for cause in diagnosis.causes), *diagnosis.warnings):
        assert finding.evidence
        assert finding.metrics


def log_of_long_texts(count=200, cap=1024, seed=0):
    """Return a healthy log of completions of about a thousand tokens, whose lengths differ by hundreds."""
    rng = np.random.default_rng(seed)
    lengths = np.minimum(cap, 700 + rng.normal(0, 60, count))
    return healthy(
        count,
        seed=seed,
        **{"length/mean": lengths, "length/truncated_frac": np.clip(rng.normal(0.04, 0.02, count), 0, 1)},
    )


@pytest.mark.parametrize("seed", range(5))
def test_completions_of_a_thousand_tokens_that_grow_to_the_cap_are_the_cause(seed):
    log = log_of_long_texts(seed=seed)
    assert diagnose(log).outcome.verdict == "healthy"
    length_changes = {"length__mean": becomes(1023.0), "length__truncated_frac": becomes(0.9)}
    diagnosis = diagnose(change_series(change_series(log, 120, **length_changes), 125, **FALLS))
    assert (diagnosis.outcome.verdict, diagnosis.causes[0].finding.cause) == ("collapsed", "length_blowup")
    assert diagnosis.onset.healthy <= 120 <= diagnosis.onset.sick + 1


@pytest.mark.parametrize("seed", range(5))
def test_a_cap_that_is_lowered_during_a_run_is_dated_to_its_step(seed):
    """Half of the completions are truncated before, and the median of all steps is above the limit."""
    rng = np.random.default_rng(seed)
    truncated = np.clip(rng.normal(0.5, 0.06, 60), 0, 1)
    log = healthy(60, seed=seed, **{"length/mean": steady(60, 6.5), "length/truncated_frac": truncated})
    change = {"length__mean": becomes(2.0), "length__truncated_frac": becomes(1.0)}
    diagnosis = diagnose(change_series(log, 20, **change, **FALLS))
    assert [cause.finding.title for cause in diagnosis.causes] == [
        "Completions are cut off at a shorter length"
    ]
    assert diagnosis.onset.healthy <= 20 < diagnosis.onset.sick


@pytest.mark.parametrize("seed", range(5))
def test_a_collapse_with_one_long_group_per_step_has_its_cause(seed):
    """With one prompt and eight completions of about a thousand tokens, all metrics are noisy."""
    rng = np.random.default_rng(seed)
    rate = np.minimum(0.6, 0.2 + np.arange(400) * 0.003)
    rate[255:] = 0.02
    entropy = 0.3 * rng.lognormal(0, 0.3, 400)
    entropy[250:] *= 6
    log = Log(
        {
            "reward/accuracy": series(rng.binomial(8, rate) / 8),
            "length/mean": series(np.minimum(1024, rng.normal(700, 150, 400))),
            "policy/entropy": series(entropy),
            "optim/grad_norm": series(0.5 * rng.lognormal(0, 0.4, 400)),
        }
    )
    diagnosis = diagnose(log)
    assert diagnosis.outcome.verdict == "collapsed"
    assert diagnosis.causes[0].finding.cause == "entropy_explosion"
    assert abs(diagnosis.onset.sick - 250) <= 10


def test_an_entropy_that_collapsed_while_the_goal_still_rose_is_compared_with_the_start():
    def fade(values):
        return values * np.exp(-np.arange(len(values)) / 9)

    log = change_series(healthy(120), 30, policy__entropy=fade)
    log = change_series(log, 75, reward__accuracy=lambda values: values * 0.02)
    log = Log(dict(log.series) | {"reward/mean": log.series["reward/accuracy"]})
    assert diagnose(log).causes[0].finding.cause == "entropy_collapse"
