"""Detectors for problems of the updates: non-finite numbers, sizes, the KL term, dead runs and critics."""

import math

import numpy as np

from backend.analysis.diagnosis.changes import Sign
from backend.analysis.diagnosis.findings import Finding
from backend.analysis.diagnosis.first_steps import changed_at_once
from backend.analysis.diagnosis.log import Log
from backend.analysis.diagnosis.outcome import Interval, Outcome
from backend.analysis.diagnosis.signs import (
    TITLES,
    Answer,
    find_first_change,
    find_standing,
    has_any_metric,
    make_finding,
    make_unjudged,
    missing_data,
)


def non_finite(log: Log, outcome: Outcome) -> Answer:
    """The loss, the gradient or the reward is not finite, or updates are skipped."""
    names = ("loss/total", "loss/policy", "optim/grad_norm", "reward/mean", "policy/entropy")
    first_steps = {
        name: int(series.steps[~np.isfinite(series.values)][0])
        for name in names
        if (series := log.series.get(name)) is not None and not np.isfinite(series.values).all()
    }
    skipped_updates = log.series.get("optim/skipped")
    if skipped_updates is not None and (skipped_updates.values > 0).any():
        first_steps["optim/skipped"] = int(skipped_updates.steps[skipped_updates.values > 0][0])
    if not first_steps:
        return (
            None
            if has_any_metric(log, *names)
            else make_unjudged("non_finite", "a loss, a gradient norm or a reward")
        )
    name, step = min(first_steps.items(), key=lambda item: item[1])
    series = log.series[name]
    is_bad = (series.values > 0) if name == "optim/skipped" else ~np.isfinite(series.values)
    last_step = int(series.steps[is_bad][-1])
    count = int(is_bad.sum())
    is_end_known = log.status in {"failed", "stopped"}  # the trainer gave up, so the values lasted
    share = (
        float(np.mean(is_bad[series.steps >= step])) if count >= MIN_LASTING_VALUES or is_end_known else 0.0
    )
    sentence = f"{name} was not finite at {count} of {len(series)} steps, from step {step} to {last_step}"
    if name == "optim/skipped":
        sentence = (
            f"{int(is_bad.sum())} steps skipped updates whose loss or gradient was not finite, "
            f"first step {step}"
        )
    steps_before = series.steps[series.steps < step]
    onset = Interval(int(steps_before[-1]) if len(steps_before) else step, step)
    return Finding("non_finite", TITLES["non_finite"], onset, "specific", 1.0, share, (sentence,), (name,))


MIN_LASTING_VALUES = 3
"""Minimum number of non-finite values that count as lasting, because a trainer can skip single updates."""


def update_size(log: Log, outcome: Outcome) -> Answer:
    """Gradients or the learning rate grow, so that updates are too large for the policy."""
    if not has_any_metric(log, "optim/grad_norm", "optim/lr", "optim/update_norm"):
        finding = _large_from_the_start(log, outcome)
        return finding or make_unjudged("update_size", "the gradient norm or the learning rate")
    signs = (
        Sign("optim/lr", "up", 1.5, 1e-12, is_log=True, is_setting=True),
        Sign("optim/grad_norm", "up", 3.0, 1e-6, is_log=True),
        Sign("optim/update_norm", "up", 3.0, 1e-9, is_log=True),
        Sign("ratio/max", "up", 3.0, 0.2, is_log=True, threshold=3.0),
    )
    change = find_first_change(log, outcome, *signs)
    if change is None:
        return _large_from_the_start(log, outcome)
    return make_finding(
        "update_size", change, tier="consistent" if change.metric == "ratio/max" else "specific"
    )


MAX_EARLY_STEP = 10
"""A fall that begins by this step leaves too few healthy steps to compare with."""


def _large_from_the_start(log: Log, outcome: Outcome) -> Answer:
    """Return a finding if ratios or distances are always too large, or
    the first updates changed the policy.
    """
    if outcome.onset is None or outcome.onset.healthy > MAX_EARLY_STEP:
        return None
    return (
        find_standing(log, "update_size", "ratio/max", 10.0)
        or find_standing(log, "update_size", "kl/k3", 0.5)
        or _changed_at_once(log)
    )


def _changed_at_once(log: Log) -> Answer:
    first_change = changed_at_once(log)
    if first_change is None:
        return None
    sentence = (
        f"{first_change.metric} went from {first_change.first:.3g} at step {first_change.onset.healthy} to "
        f"{first_change.soon:.3g} within {first_change.last} steps"
    )
    return Finding(
        "update_size",
        TITLES["update_size"],
        first_change.onset,
        "consistent",
        0.8,
        1.0,
        (sentence,),
        (first_change.metric,),
    )


def dead_run(log: Log, outcome: Outcome) -> Answer:
    """No update changes the weights. A loss of 0 or a ratio of 1 is not evidence for this."""
    if outcome.onset is not None:
        return None  # a fall of the goal proves that the weights changed
    limits = {"optim/update_norm": 0.0, "optim/lr": MAX_DEAD_LEARNING_RATE, "optim/grad_norm": 0.0}
    logged_series = [
        named_series for name in limits if (named_series := log.find(name, min_points=5)) is not None
    ]
    if not logged_series:
        needed_data = "the learning rate, the gradient norm or the size of the updates"
        return missing_data(log, "dead_run", needed_data, *limits, min_points=5)
    same_evaluations = _same_evaluations(log)
    for name, series in logged_series:
        values = series.values[len(series) // 10 :]
        still_share = float(np.mean(values <= limits[name]))
        if name == "optim/grad_norm" and series.values[:3].any():
            continue  # the first updates changed the weights, and later ones had no signal
        is_rounded = name == "optim/lr" and not log.config and not values.any() and not same_evaluations
        if is_rounded:
            return make_unjudged("dead_run", "a learning rate with more digits: every value is printed as 0")
        if still_share > 0.9:
            onset = Interval(int(series.steps[0]), int(series.steps[0]))
            evidence = (
                f"{name} is at most {limits[name]:g} at {still_share:.0%} of the steps",
                *same_evaluations,
            )
            return Finding("dead_run", TITLES["dead_run"], onset, "specific", 1.0, 1.0, evidence, (name,))
    return None


MAX_DEAD_LEARNING_RATE = 1e-9
"""Learning rate below which float32 weights hardly change during a run."""


def _same_evaluations(log: Log) -> tuple[str, ...]:
    evaluations = log.find("eval/accuracy")
    if evaluations is None or float(np.ptp(evaluations[1].values)) > 0:
        return ()
    return (f"all {len(evaluations[1])} evaluations gave exactly {evaluations[1].values[0]:.3g}",)


def kl_pull(log: Log, outcome: Outcome) -> Answer:
    """The KL term jumps in the loss or dominates the gradient. k1 in the loss may push the policy away."""
    if not has_any_metric(log, "loss/kl", "optim/kl_share"):
        return (
            None if has_any_metric(log, "loss/total") else make_unjudged("kl_pull", "the KL term of the loss")
        )
    change = find_first_change(
        log,
        outcome,
        Sign("loss/kl", "up", 3.0, 1e-3, is_setting=True),
        Sign("loss/kl", "down", -3.0, 1e-3, is_setting=True),
        *(
            ()
            if has_any_metric(log, "loss/kl")
            else (Sign("optim/kl_share", "up", 3.0, 0.02, threshold=DOMINANT_FRACTION),)
        ),
    )
    kind, coefficient = log.setting("objective.kl.type"), log.setting("objective.kl.coef")
    evidence = (
        (f"objective.kl is {kind} with coef {coefficient:g} in the loss",) if kind and coefficient else ()
    )
    overall_share = _share_of_kl(log, 0, outcome)
    if overall_share > DOMINANT_FRACTION:
        return _kl_dominates_throughout(log, (_dominates(overall_share), *evidence))
    if change is None:
        return None
    share = _share_of_kl(log, change.onset.sick, outcome)
    if share > DOMINANT_FRACTION:
        evidence = (_dominates(share), *evidence)
    is_specific = kind == "k1" or share > DOMINANT_FRACTION
    return make_finding(
        "kl_pull", change, tier="specific" if is_specific else "consistent", evidence=evidence
    )


DOMINANT_FRACTION = 0.6
"""Fraction of the gradient above which the KL term determines the update instead of the reward."""


def _dominates(share: float) -> str:
    return f"the KL term makes {share:.0%} of the gradient in the median step"


def _share_of_kl(log: Log, first: int, outcome: Outcome) -> float:
    """Return the KL term's median fraction of the gradient from a step until the fall, or 0 if unknown."""
    last_step = outcome.onset.sick if outcome.onset and outcome.onset.sick > first + 2 else math.inf
    kl_share = log.find("optim/kl_share")
    values = kl_share[1].between(first, last_step).values if kl_share else np.zeros(0)
    signal_values = values[values < 1]
    return float(np.median(signal_values)) if len(signal_values) >= 3 else 0.0


def _kl_dominates_throughout(log: Log, evidence: tuple[str, ...]) -> Finding:
    first_step = int(log.series["optim/kl_share"].steps[0])
    onset, metrics = Interval(first_step, first_step), ("optim/kl_share",)
    return Finding("kl_pull", TITLES["kl_pull"], onset, "consistent", 0.8, 1.0, evidence, metrics)


def kl_runaway(log: Log, outcome: Outcome) -> Answer:
    """The distance from the reference grows far beyond that of working runs."""
    if gap := missing_data(log, "kl_runaway", "a KL to the reference", "kl/k3", "kl/k2", "kl/k1"):
        return gap
    if (always_large := find_standing(log, "kl_runaway", "kl/k3", MAX_WORKING_KL_NATS)) is not None:
        return always_large
    threshold = FALL_KL_NATS if outcome.onset is not None else WARNING_KL_NATS
    signs = [Sign(metric, "up", 5.0, 1e-3, is_log=True, threshold=threshold) for metric in ("kl/k3", "kl/k2")]
    change = find_first_change(log, outcome, *signs)
    return None if change is None else make_finding("kl_runaway", change, tier="consistent")


FALL_KL_NATS, WARNING_KL_NATS, MAX_WORKING_KL_NATS = 0.2, 1.0, 10.0
"""Limits of the KL in nats per token. Runs without a penalty may learn
at a few tenths, but never at MAX_WORKING_KL_NATS.
"""


def displacement(log: Log, outcome: Outcome) -> Answer:
    """Updates make right answers less likely, as a side effect of pushing away from wrong ones."""
    lift_series = log.find("policy/lift_right", min_points=4)
    if lift_series is None:
        needed_data = "the lift of right answers (policy/lift_right)"
        return missing_data(log, "displacement", needed_data, "policy/lift_right", min_points=4)
    if outcome.healthy is None or outcome.onset is None:
        return None
    lift_before = lift_series[1].between(-math.inf, outcome.healthy.sick).values
    later_lift = lift_series[1].between(outcome.healthy.sick + 1, outcome.onset.sick + 1)
    if len(lift_before) < 2 or len(later_lift) < 2 or float(np.median(lift_before)) <= 0:
        return None
    median_lift = float(np.median(later_lift.values))
    if median_lift > -float(np.median(lift_before)):
        return None
    sentence = (
        f"policy/lift_right was {float(np.median(lift_before)):.3g} nats a step while the run was healthy "
        f"and {median_lift:.3g} before the goal fell"
    )
    onset = Interval(outcome.healthy.sick, int(later_lift.steps[later_lift.values < 0][0]))
    metrics = ("policy/lift_right",)
    return Finding("displacement", TITLES["displacement"], onset, "specific", 0.8, 1.0, (sentence,), metrics)


def critic(log: Log, outcome: Outcome) -> Answer:
    """The predictions of the critic are worse than the mean of the returns."""
    if not has_any_metric(log, "critic/explained_variance"):
        return None  # no critic
    change = find_first_change(
        log, outcome,
        Sign("critic/loss", "up", 5.0, 1e-6, is_log=True),
        Sign("critic/explained_variance", "down", 0.0, 0.1, threshold=0.0),
    )  # fmt: skip
    return None if change is None else make_finding("critic", change, tier="consistent")
