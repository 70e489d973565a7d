"""Detectors of what is wrong with reward, data and signal rather than with the policy."""

import math
import re

import numpy as np

from backend.analysis.diagnosis.changes import Sign
from backend.analysis.diagnosis.findings import Finding, Tier
from backend.analysis.diagnosis.log import TERM, Log, Series
from backend.analysis.diagnosis.outcome import SURE, Interval, Outcome
from backend.analysis.diagnosis.signs import (
    ALL_TRUNCATED,
    TITLES,
    Answer,
    change_of,
    finding_of,
    has,
    lacking,
    standing,
    unjudged,
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
"""Changes of the policy that a change of the verifier does not make."""

JUMP = 4.0
"""Standard deviations by which the goal falls from one step to the next when its measure changes."""


def verifier(log: Log, outcome: Outcome) -> Answer:
    """A goal that drops within a step while the policy stays as it was, or that never changes at all."""
    goal_series = log.find(outcome.goal) if outcome.goal else None
    if goal_series is None:
        return unjudged("verifier", "an accuracy or a reward")
    series = goal_series[1]
    if outcome.verdict == "never_learned" and float(np.ptp(series.values)) == 0.0:
        value = float(series.values[0])
        words = f"{outcome.goal} is {value:.3g} at all {len(series)} steps: all completions are judged alike"
        onset = Interval(int(series.steps[0]), int(series.steps[0]))
        is_cut_off = standing(log, "length_blowup", "length/truncated_frac", ALL_TRUNCATED) is not None
        why = ("an answer that is cut off cannot be right, which may be the reason",) if is_cut_off else ()
        tier: Tier = "consistent" if is_cut_off else "specific"
        return Finding("verifier", TITLES["verifier"], onset, tier, 1.0, 1.0, (words, *why), (outcome.goal,))
    if (contradicted := _contradicted(log)) is not None:
        return contradicted
    if outcome.verdict == "never_learned" and (wrong := _always_wrong(log)) is not None:
        return wrong
    if outcome.onset is None or outcome.goal.startswith("eval/"):
        return None  # a step is too small to be seen between evaluations
    return _sudden(log, outcome, series, outcome.onset)


def _always_wrong(log: Log) -> Answer:
    """Groups that are all wrong at nearly every step: problems too hard, or answers that are wrong."""
    all_wrong = log.find("groups/all_wrong_frac", least=5)
    if all_wrong is None or (middle := float(np.median(all_wrong[1].values))) < 0.8:
        return None
    first = int(all_wrong[1].steps[0])
    words = f"{middle:.0%} of the groups were all wrong in the median step: too hard, or judged wrongly"
    onset, metrics = Interval(first, first), ("groups/all_wrong_frac",)
    return Finding("verifier", TITLES["verifier"], onset, "consistent", middle, 1.0, (words,), metrics)


def _contradicted(log: Log) -> Answer:
    """Training problems that are judged wrong while the same policy solves held-out ones."""
    trained, sets = log.find("reward/accuracy", least=12), log.held_out(least=4)
    if trained is None or not sets:
        return None
    name, held_out = next(iter(sets.items()))
    steps, values = held_out.steps, held_out.values
    pairs = np.minimum(values[:-1], values[1:])
    at = int(np.argmax(pairs))
    near = trained[1].between(steps[at], steps[at + 1])
    low, high = float(np.mean(near.values)) if len(near) else math.inf, float(pairs[at])
    if high < 0.1 or low > 0.2 * high:
        return None
    words = (
        f"reward/accuracy is {low:.3g} on average between steps {int(steps[at])} and {int(steps[at + 1])}, "
        f"{name} at least {high:.3g}: the training problems' answers or their check are wrong"
    )
    first = int(trained[1].steps[0])
    metrics = ("reward/accuracy", name)
    onset = Interval(first, first)
    return Finding("verifier", TITLES["verifier"], onset, "specific", 1.0, 1.0, (words,), metrics)


def _sudden(log: Log, outcome: Outcome, series: Series, fall: Interval) -> Answer:
    reach = 3 * _spacing(series)
    near = series.between(fall.healthy - reach, fall.sick + reach)
    if len(near) < 4:
        return None
    before = series.between(-math.inf, fall.healthy).values
    sigma = max(noise(before), 0.02 * max(abs(outcome.best), 1e-9))
    drops = np.array(
        [near.values[max(0, i - 3) : i].mean() - near.values[i : i + 4].mean() for i in range(1, len(near))]
    )
    index = int(np.argmax(drops)) + 1
    after = series.values[series.steps >= near.steps[index]][:6]
    level = float(before[-5:].mean())
    if level - float(after.mean()) < max(JUMP * sigma / math.sqrt(min(3, len(after))), 0.6 * level):
        return None
    step = int(near.steps[index])
    behaviour = ("policy/entropy", "length/mean", "kl/k3", "policy/token_prob_mean")
    unchanging = [name for name in behaviour if _is_known_before(log, name, step)]
    if not unchanging:
        return unjudged("verifier", "entropy, length or KL, to see whether the policy changed too")
    if any(_moved_at(log.series[name], step) for name in unchanging):
        return None
    earlier = [change for sign in BEHAVIOUR if (change := change_of(log, outcome, sign)) is not None]
    if any(change.onset.healthy < step for change in earlier):
        return None
    words = (
        f"{outcome.goal} fell from {level:.3g} to {float(after.mean()):.3g} within step {step}",
        f"{', '.join(unchanging)} did not change at that step",
    )
    onset = Interval(int(series.steps[series.steps < step][-1]), step)
    return Finding("verifier", TITLES["verifier"], onset, "specific", 1.0, 1.0, words, (outcome.goal,))


def _is_known_before(log: Log, name: str, step: int) -> bool:
    series = log.series.get(name)
    return series is not None and int(np.sum(series.finite().steps < step)) >= 4


def _moved_at(series: Series, step: int) -> bool:
    """Return whether a metric of behaviour left its values of the 10 steps before `step` within 2 steps."""
    finite = series.finite()
    before = finite.values[finite.steps < step][-10:]
    at = finite.values[finite.steps >= step][:3]
    if len(before) < 4 or not len(at):
        return False
    spread = max(noise(before), 0.05 * abs(float(np.median(before))), 1e-3)
    return bool(abs(float(np.median(at)) - float(np.median(before))) > 4 * spread)


def _spacing(series: Series) -> float:
    return float(np.median(np.diff(series.steps))) if len(series) > 1 else 1.0


def reward_hacking(log: Log, outcome: Outcome) -> Answer:
    """Total reward that stays, or a term of it that rises, while right answers become rarer."""
    goal = outcome.goal
    if goal in {"", "reward/mean"}:
        return unjudged(
            "reward_hacking", "an accuracy beside the reward; by the reward alone hacking is invisible"
        )
    total = log.find("reward/mean", least=12)
    if total is None:
        return unjudged("reward_hacking", "a reward and an accuracy")
    if outcome.onset is None or outcome.healthy is None:
        return None
    was, now, doubt = _before_and_after(total[1], outcome.healthy, outcome.onset)
    unearned = change_of(log, outcome, Sign("reward/unearned_share", "up", 1.2, 0.02, threshold=0.5))
    term = _term_that_rose(log, outcome)
    stays = now >= was - 2 * doubt and was > 0
    if math.isnan(doubt) or not (stays or unearned or term):
        return None
    words = [
        f"reward/mean went from {was:.3g} before step {outcome.onset.healthy} to {now:.3g} after it",
        f"{goal} fell from {outcome.best:.3g} to {outcome.end:.3g}",
    ]
    onset, metrics = outcome.onset, ["reward/mean", goal]
    if term is not None:
        words.append(term[1])
        metrics.append(term[0])
        risen = change_of(log, outcome, Sign(term[0], "up", 1.5, 0.02))
        if risen is not None:
            onset = min(onset, risen.onset, key=lambda interval: interval.middle)
    if unearned is not None:
        words.insert(
            0, f"wrong completions earned {unearned.extreme:.0%} of the reward, {unearned.healthy:.0%} before"
        )
        metrics.insert(0, "reward/unearned_share")
        onset = min(onset, unearned.onset, key=lambda interval: interval.middle)
    strength = min(1.0, 1 - outcome.end / max(2 * outcome.best, 1e-9))
    is_specific = bool(term or unearned) or not goal.startswith("eval/") or has(log, "reward/accuracy")
    if not is_specific:
        words.append("the log has no accuracy in training, without which overfitting looks the same")
    tier: Tier = "specific" if is_specific else "consistent"
    return Finding(
        "reward_hacking", TITLES["reward_hacking"], onset, tier, strength, 1.0, tuple(words), tuple(metrics)
    )


def _before_and_after(series: Series, healthy: Interval, onset: Interval) -> tuple[float, float, float]:
    """Return the means before and after an onset, and the standard error of their difference; NaN for few."""
    before, after = series.between(healthy.healthy, onset.healthy), series.between(onset.sick, math.inf)
    if len(before) < 3 or len(after) < 3:
        return math.nan, math.nan, math.nan
    doubt = noise(series.values) * math.hypot(1 / math.sqrt(len(before)), 1 / math.sqrt(len(after)))
    return float(before.values.mean()), float(after.values.mean()), doubt


RIGHT = re.compile(r"acc|correct|right|solve|exact|answer", re.IGNORECASE)
"""Words in the names of terms that pay right answers."""


def _term_that_rose(log: Log, outcome: Outcome) -> tuple[str, str] | None:
    """Return the term, and words about it, that pays surely more after the fall while all others pay less."""
    total = log.find("reward/mean", least=12)
    if total is None or outcome.onset is None or outcome.healthy is None:
        return None
    was_total, now_total, _ = _before_and_after(total[1], outcome.healthy, outcome.onset)
    for name in log.series:
        term = log.find(name, least=12) if TERM.fullmatch(name) and not RIGHT.search(name) else None
        if term is None:
            continue
        was, now, doubt = _before_and_after(term[1], outcome.healthy, outcome.onset)
        if now - was > max(SURE * doubt, 0.1 * abs(was)) and now_total - now < was_total - was:
            others = f"the other terms fell from {was_total - was:.3g} to {now_total - now:.3g}"
            return name, f"{name} rose from {was:.3g} to {now:.3g}, {others}"
    return None


def overfitting(log: Log, outcome: Outcome) -> Answer:
    """Held-out accuracy that falls while the training accuracy stays or rises."""
    if not log.held_out():
        return unjudged("overfitting", "evaluations on held-out problems")
    train = log.find("reward/accuracy", least=12)
    if train is None or not outcome.goal.startswith("eval/") or outcome.onset is None:
        return None
    before = train[1].between(-math.inf, outcome.onset.healthy).values[-15:]
    after = train[1].between(outcome.onset.sick, math.inf).values
    if len(before) < 3 or len(after) < 3 or float(after.mean()) < 0.9 * float(before.mean()):
        return None
    words = (
        f"{outcome.goal} fell from {outcome.best:.3g} to {outcome.end:.3g}; reward/accuracy went from "
        f"{float(before.mean()):.3g} to {float(after.mean()):.3g}"
    )
    return Finding(
        "overfitting", TITLES["overfitting"], outcome.onset, "specific", 1.0, 1.0, (words,),
        (outcome.goal, "reward/accuracy"),
    )  # fmt: skip


ALL_ALIKE = 0.95
"""Share of groups without a signal, in the median step, with which no rise can be expected."""


def vanishing_signal(log: Log, outcome: Outcome) -> Answer:
    """Groups whose completions all earn the same: no gradient comes from them."""
    equal_groups = log.find("groups/zero_variance_frac", least=5)
    if equal_groups is None:
        needs = "the share of groups with equal rewards"
        return lacking(log, "vanishing_signal", needs, "groups/zero_variance_frac", least=5)
    least = {"never_learned": 0.5, "inconclusive": ALL_ALIKE}.get(outcome.verdict, 1.0)
    if (middle := float(np.median(equal_groups[1].values))) > least:
        first = int(equal_groups[1].steps[0])
        words = f"{middle:.0%} of the groups had equal rewards in the median step"
        onset = Interval(first, first)
        title, metrics = TITLES["vanishing_signal"], ("groups/zero_variance_frac",)
        return Finding("vanishing_signal", title, onset, "specific", middle, 1.0, (words,), metrics)
    grown = change_of(log, outcome, Sign("groups/zero_variance_frac", "up", 1.3, 0.02, threshold=0.8))
    return None if grown is None else finding_of("vanishing_signal", grown, tier="consistent")
