"""Detectors for problems of the reward, the data and the signal."""

import math
import re

import numpy as np

from backend.analysis.diagnosis.changes import Sign
from backend.analysis.diagnosis.findings import Finding, Tier
from backend.analysis.diagnosis.log import TERM_MEAN_PATTERN, Log, Series
from backend.analysis.diagnosis.outcome import MIN_SIGNIFICANT_ERRORS, Interval, Outcome
from backend.analysis.diagnosis.signs import (
    MAX_TRUNCATED_FRACTION,
    TITLES,
    Answer,
    find_change,
    find_standing,
    has_any_metric,
    make_finding,
    make_unjudged,
    missing_data,
)
from backend.analysis.diagnosis.smoothing import noise

BEHAVIOUR = (
    Sign("policy/entropy", "up", 1.5, 0.02),
    Sign("policy/entropy", "down", 0.6, 0.02),
    Sign("length/mean", "up", 1.4, 2.0),
    Sign("length/mean", "down", 0.7, 2.0),
    Sign("kl/k3", "up", 5.0, 1e-3, is_log=True),
    Sign("optim/grad_norm", "up", 3.0, 1e-6, is_log=True),
    Sign("optim/lr", "up", 1.5, 1e-12, is_log=True, is_setting=True),
    Sign("text/repetition", "up", 2.0, 0.02, threshold=0.2),
    Sign("text/compression", "down", 0.6, 0.02),
    Sign("text/structure_ok", "down", 0.7, 0.02),
    Sign("text/structure_broken", "up", 2.0, 0.02, threshold=0.1),
    Sign("text/structure_polluted", "up", 2.0, 0.02, threshold=0.1),
    Sign("text/unusual_script_frac", "up", 2.0, 0.01, threshold=0.05),
)
"""Changes of the policy that a change of the verifier cannot cause."""

MIN_JUMP_ERRORS = 4.0
"""Minimum fall of the goal within a step if its measure changes, in standard errors."""

MIN_POINTS_BEFORE_JUMP = 8
"""Minimum number of points before a fall within a step."""


def verifier(log: Log, outcome: Outcome) -> Answer:
    """The goal falls within a step while the policy does not change, or it never changes."""
    goal_series = log.find(outcome.goal) if outcome.goal else None
    if goal_series is None:
        return make_unjudged("verifier", "an accuracy or a reward")
    series = goal_series[1]
    if outcome.verdict == "never_learned" and float(np.ptp(series.values)) == 0.0:
        value = float(series.values[0])
        sentence = (
            f"{outcome.goal} is {value:.3g} at all {len(series)} steps: all completions are judged alike"
        )
        onset = Interval(int(series.steps[0]), int(series.steps[0]))
        is_cut_off = (
            find_standing(log, "length_blowup", "length/truncated_frac", MAX_TRUNCATED_FRACTION) is not None
        )
        reasons = (
            ("an answer that is cut off cannot be right, which may be the reason",) if is_cut_off else ()
        )
        tier: Tier = "consistent" if is_cut_off else "specific"
        return Finding(
            "verifier", TITLES["verifier"], onset, tier, 1.0, 1.0, (sentence, *reasons), (outcome.goal,)
        )
    if (contradiction := _find_contradiction(log)) is not None:
        return contradiction
    if outcome.verdict == "never_learned" and (finding := _always_wrong(log)) is not None:
        return finding
    if outcome.onset is None or outcome.goal.startswith("eval/"):
        return None  # evaluations are too rare to show a change within a step
    return _find_sudden_fall(log, outcome, series, outcome.onset)


def _always_wrong(log: Log) -> Answer:
    """Return a finding if nearly all groups are entirely wrong, because of hard problems or wrong answers."""
    all_wrong = log.find("groups/all_wrong_frac", min_points=5)
    if all_wrong is None or (median_share := float(np.median(all_wrong[1].values))) < 0.8:
        return None
    first_step = int(all_wrong[1].steps[0])
    sentence = (
        f"{median_share:.0%} of the groups were all wrong in the median step: too hard, or judged wrongly"
    )
    onset, metrics = Interval(first_step, first_step), ("groups/all_wrong_frac",)
    return Finding(
        "verifier", TITLES["verifier"], onset, "consistent", median_share, 1.0, (sentence,), metrics
    )


def _find_contradiction(log: Log) -> Answer:
    """Return a finding if training problems are graded as wrong while the policy solves held-out ones."""
    training_accuracy, held_out_sets = log.find("reward/accuracy", min_points=12), log.held_out(min_points=4)
    if training_accuracy is None or not held_out_sets:
        return None
    name, held_out = next(iter(held_out_sets.items()))
    steps, values = held_out.steps, held_out.values
    pair_minima = np.minimum(values[:-1], values[1:])
    index = int(np.argmax(pair_minima))
    trained_accuracy = training_accuracy[1].between(steps[index], steps[index + 1])
    trained_mean, held_out_min = (
        float(np.mean(trained_accuracy.values)) if len(trained_accuracy) else math.inf,
        float(pair_minima[index]),
    )
    if held_out_min < 0.1 or trained_mean > 0.2 * held_out_min:
        return None
    sentence = (
        f"reward/accuracy is {trained_mean:.3g} on average between steps {int(steps[index])} and "
        f"{int(steps[index + 1])}, "
        f"{name} at least {held_out_min:.3g}: the training problems' answers or their check are wrong"
    )
    first_step = int(training_accuracy[1].steps[0])
    metrics = ("reward/accuracy", name)
    onset = Interval(first_step, first_step)
    return Finding("verifier", TITLES["verifier"], onset, "specific", 1.0, 1.0, (sentence,), metrics)


def _find_sudden_fall(log: Log, outcome: Outcome, series: Series, fall: Interval) -> Answer:
    margin = 3 * _compute_spacing(series)
    nearby = series.between(fall.healthy - margin, fall.sick + margin)
    values_before = series.between(-math.inf, fall.healthy).values
    if len(nearby) < 4 or len(values_before) < MIN_POINTS_BEFORE_JUMP:
        return None
    sigma = max(noise(values_before), 0.02 * max(abs(outcome.best), 1e-9))
    drops = np.array(
        [
            nearby.values[max(0, i - 3) : i].mean() - nearby.values[i : i + 4].mean()
            for i in range(1, len(nearby))
        ]
    )
    index = int(np.argmax(drops)) + 1
    values_after = series.values[series.steps >= nearby.steps[index]][:6]
    mean_before = float(values_before[-5:].mean())
    if mean_before - float(values_after.mean()) < max(
        MIN_JUMP_ERRORS * sigma / math.sqrt(min(3, len(values_after))), 0.6 * mean_before
    ):
        return None
    step = int(nearby.steps[index])
    behaviour = ("policy/entropy", "length/mean", "kl/k3", "policy/token_prob_mean")
    unchanged_metrics = [name for name in behaviour if _is_known_before(log, name, step)]
    if not unchanged_metrics:
        return make_unjudged("verifier", "entropy, length or KL, to see whether the policy changed too")
    if any(_moved_at(log.series[name], step) for name in unchanged_metrics):
        return None
    earlier = [change for sign in BEHAVIOUR if (change := find_change(log, outcome, sign)) is not None]
    if any(change.onset.healthy < step for change in earlier):
        return None
    evidence = (
        f"{outcome.goal} fell from {mean_before:.3g} to {float(values_after.mean()):.3g} within step {step}",
        f"{', '.join(unchanged_metrics)} did not change at that step",
    )
    onset = Interval(int(series.steps[series.steps < step][-1]), step)
    return Finding("verifier", TITLES["verifier"], onset, "specific", 1.0, 1.0, evidence, (outcome.goal,))


def _is_known_before(log: Log, name: str, step: int) -> bool:
    series = log.series.get(name)
    return series is not None and int(np.sum(series.finite().steps < step)) >= 4


def _moved_at(series: Series, step: int) -> bool:
    """Return whether a metric changed from its values in the 10 points before `step` within 3 points."""
    finite = series.finite()
    values_before = finite.values[finite.steps < step][-10:]
    values_after = finite.values[finite.steps >= step][:3]
    if len(values_before) < 4 or not len(values_after):
        return False
    spread = max(noise(values_before), 0.05 * abs(float(np.median(values_before))), 1e-3)
    return bool(abs(float(np.median(values_after)) - float(np.median(values_before))) > 4 * spread)


def _compute_spacing(series: Series) -> float:
    return float(np.median(np.diff(series.steps))) if len(series) > 1 else 1.0


def reward_hacking(log: Log, outcome: Outcome) -> Answer:
    """The total reward stays the same, or one of its terms rises, while right answers become rarer."""
    goal = outcome.goal
    if goal in {"", "reward/mean"}:
        return make_unjudged(
            "reward_hacking", "an accuracy beside the reward; by the reward alone hacking is invisible"
        )
    total = log.find("reward/mean", min_points=12)
    if total is None:
        return make_unjudged("reward_hacking", "a reward and an accuracy")
    if outcome.onset is None or outcome.healthy is None:
        return None
    reward_before, reward_after, standard_error = _before_and_after(total[1], outcome.healthy, outcome.onset)
    unearned_change = find_change(log, outcome, Sign("reward/unearned_share", "up", 1.2, 0.02, threshold=0.5))
    term = _term_that_rose(log, outcome)
    is_kept = reward_after >= reward_before - 2 * standard_error and reward_before > 0
    if math.isnan(standard_error) or not (is_kept or unearned_change or term):
        return None
    evidence = [
        (
            f"reward/mean went from {reward_before:.3g} before step {outcome.onset.healthy} to "
            f"{reward_after:.3g} after it"
        ),
        f"{goal} fell from {outcome.best:.3g} to {outcome.end:.3g}",
    ]
    onset, metrics = outcome.onset, ["reward/mean", goal]
    if term is not None:
        evidence.append(term[1])
        metrics.append(term[0])
        rise = find_change(log, outcome, Sign(term[0], "up", 1.5, 0.02))
        if rise is not None:
            onset = min(onset, rise.onset, key=lambda interval: interval.middle)
    if unearned_change is not None:
        evidence.insert(
            0,
            f"wrong completions earned {unearned_change.extreme:.0%} of the reward, "
            f"{unearned_change.healthy:.0%} before",
        )
        metrics.insert(0, "reward/unearned_share")
        onset = min(onset, unearned_change.onset, key=lambda interval: interval.middle)
    strength = min(1.0, 1 - outcome.end / max(2 * outcome.best, 1e-9))
    is_specific = (
        bool(term or unearned_change)
        or not goal.startswith("eval/")
        or has_any_metric(log, "reward/accuracy")
    )
    if not is_specific:
        evidence.append("the log has no accuracy in training, without which overfitting looks the same")
    tier: Tier = "specific" if is_specific else "consistent"
    return Finding(
        "reward_hacking",
        TITLES["reward_hacking"],
        onset,
        tier,
        strength,
        1.0,
        tuple(evidence),
        tuple(metrics),
    )


def _before_and_after(
    series: Series, healthy_interval: Interval, onset: Interval
) -> tuple[float, float, float]:
    """Return the means before and after an onset, and the standard error of their difference.

    All are NaN if there are fewer than three points before or after it.
    """
    points_before, points_after = (
        series.between(healthy_interval.healthy, onset.healthy),
        series.between(onset.sick, math.inf),
    )
    if len(points_before) < 3 or len(points_after) < 3:
        return math.nan, math.nan, math.nan
    standard_error = noise(series.values) * math.hypot(
        1 / math.sqrt(len(points_before)), 1 / math.sqrt(len(points_after))
    )
    return float(points_before.values.mean()), float(points_after.values.mean()), standard_error


RIGHT_TERM_PATTERN = re.compile(r"acc|correct|right|solve|exact|answer", re.IGNORECASE)
"""Pattern in the names of reward terms for right answers."""


def _term_that_rose(log: Log, outcome: Outcome) -> tuple[str, str] | None:
    """Return the reward term that clearly rose after the fall while the others fell, with a description."""
    total = log.find("reward/mean", min_points=12)
    if total is None or outcome.onset is None or outcome.healthy is None:
        return None
    total_before, total_after, _ = _before_and_after(total[1], outcome.healthy, outcome.onset)
    for name in log.series:
        term = (
            log.find(name, min_points=12)
            if TERM_MEAN_PATTERN.fullmatch(name) and not RIGHT_TERM_PATTERN.search(name)
            else None
        )
        if term is None:
            continue
        term_before, term_after, standard_error = _before_and_after(term[1], outcome.healthy, outcome.onset)
        if (
            term_after - term_before > max(MIN_SIGNIFICANT_ERRORS * standard_error, 0.1 * abs(term_before))
            and total_after - term_after < total_before - term_before
        ):
            others_text = (
                f"the other terms fell from {total_before - term_before:.3g} to "
                f"{total_after - term_after:.3g}"
            )
            return name, f"{name} rose from {term_before:.3g} to {term_after:.3g}, {others_text}"
    return None


def overfitting(log: Log, outcome: Outcome) -> Answer:
    """The held-out accuracy falls while the training accuracy stays the same or rises."""
    if not log.held_out():
        return make_unjudged("overfitting", "evaluations on held-out problems")
    train = log.find("reward/accuracy", min_points=12)
    if train is None or not outcome.goal.startswith("eval/") or outcome.onset is None:
        return None
    accuracy_before = train[1].between(-math.inf, outcome.onset.healthy).values[-15:]
    accuracy_after = train[1].between(outcome.onset.sick, math.inf).values
    if (
        len(accuracy_before) < 3
        or len(accuracy_after) < 3
        or float(accuracy_after.mean()) < 0.9 * float(accuracy_before.mean())
    ):
        return None
    sentence = (
        f"{outcome.goal} fell from {outcome.best:.3g} to {outcome.end:.3g}; reward/accuracy went from "
        f"{float(accuracy_before.mean()):.3g} to {float(accuracy_after.mean()):.3g}"
    )
    return Finding(
        "overfitting", TITLES["overfitting"], outcome.onset, "specific", 1.0, 1.0, (sentence,),
        (outcome.goal, "reward/accuracy"),
    )  # fmt: skip


MAX_EQUAL_GROUP_FRACTION = 0.95
"""Fraction of groups without a signal in the median step above which no rise can be expected."""


def _find_equal_rewards(log: Log) -> Answer:
    """Return a finding if the standard deviation of the rewards is 0 in nearly all steps."""
    deviations = log.find("reward/std", min_points=5)
    if deviations is None or (share := float(np.mean(deviations[1].values == 0))) < MAX_EQUAL_GROUP_FRACTION:
        return None
    first_step = int(deviations[1].steps[0])
    sentence = f"reward/std is 0 at {share:.0%} of the steps: all completions of a step are rewarded alike"
    onset, metrics = Interval(first_step, first_step), ("reward/std",)
    title = TITLES["vanishing_signal"]
    return Finding("vanishing_signal", title, onset, "specific", share, 1.0, (sentence,), metrics)


def vanishing_signal(log: Log, outcome: Outcome) -> Answer:
    """In most groups, or at most steps, all completions have the same reward, so they have no gradient."""
    equal_groups = log.find("groups/zero_variance_frac", min_points=5)
    if equal_groups is None:
        if outcome.verdict in {"never_learned", "inconclusive"} and (finding := _find_equal_rewards(log)):
            return finding
        needed_data = "the share of groups with equal rewards"
        return missing_data(log, "vanishing_signal", needed_data, "groups/zero_variance_frac", min_points=5)
    limit = {"never_learned": 0.5, "inconclusive": MAX_EQUAL_GROUP_FRACTION}.get(outcome.verdict, 1.0)
    if (median_share := float(np.median(equal_groups[1].values))) > limit:
        first_step = int(equal_groups[1].steps[0])
        sentence = f"{median_share:.0%} of the groups had equal rewards in the median step"
        onset = Interval(first_step, first_step)
        title, metrics = TITLES["vanishing_signal"], ("groups/zero_variance_frac",)
        return Finding("vanishing_signal", title, onset, "specific", median_share, 1.0, (sentence,), metrics)
    change = find_change(log, outcome, Sign("groups/zero_variance_frac", "up", 1.3, 0.02, threshold=0.8))
    return None if change is None else make_finding("vanishing_signal", change, tier="consistent")
