"""Judge a run by its training goal and its held-out accuracy."""

import numpy as np

from backend.analysis.diagnosis.held_out_outcome import FALL_ALPHA, ROSE, judge_evaluations
from backend.analysis.diagnosis.log import Log, Series
from backend.analysis.diagnosis.outcome import DECLINED_FRACTION, Outcome
from backend.analysis.diagnosis.training_outcome import judge_goal
from backend.config.causes import Verdict

REWARD_METRICS = ("reward/correctness/mean", "reward/mean")

GOAL_METRICS = ("reward/accuracy", "eval/accuracy", *REWARD_METRICS)
"""Goals in the order of preference. Training accuracy comes first because it has a point at every step."""

MIN_POINTS, PREFERRED_POINTS = 8, 12
"""Minimum number of points of the goal for a verdict, and number from which a goal is preferred."""

SEVERITY_BY_VERDICT: dict[Verdict, int] = {
    "healthy": 0, "never_learned": 0, "inconclusive": 0, "recovered": 1, "declining": 2, "collapsed": 3
}  # fmt: skip


def judge(log: Log) -> Outcome:
    """Return the outcome according to the training goal and, if there
    are evaluations, the held-out accuracy.
    """
    goal_series = _find_goal(log)
    held_out = log.held_out()
    training_outcome = (
        judge_goal(*goal_series, log)
        if goal_series
        else Outcome("inconclusive", "", note=_inconclusive_note(log))
    )
    if training_outcome.goal == "eval/accuracy":
        return _dated_by_reward(training_outcome, log)
    if not held_out:
        return training_outcome
    goal = goal_series[1] if goal_series else None
    outcomes = [
        _with_held_out(training_outcome, goal, log, *evaluated, count=len(held_out))
        for evaluated in held_out.items()
    ]
    return max(outcomes, key=lambda outcome: SEVERITY_BY_VERDICT[outcome.verdict])


def _find_goal(log: Log) -> tuple[str, Series] | None:
    """Return the name and the points of the training goal, or None if no metric has enough points."""
    preferred = log.find(*GOAL_METRICS, min_points=PREFERRED_POINTS)
    return preferred or log.find(*GOAL_METRICS, min_points=MIN_POINTS)


def _dated_by_reward(outcome: Outcome, log: Log) -> Outcome:
    """Return the outcome of evaluations with the onset of a fall of the reward, which has more points."""
    reward = log.find(*REWARD_METRICS, min_points=2 * len(log.series[outcome.goal]))
    reward_outcome = judge_goal(*reward, log) if reward and outcome.onset else None
    if outcome.onset is None or reward_outcome is None or reward_outcome.onset is None:
        return outcome
    if reward_outcome.onset.healthy > outcome.onset.sick:
        return outcome
    dated = outcome._replace(onset=reward_outcome.onset, healthy=reward_outcome.healthy or outcome.healthy)
    return dated.with_window_before_the_onset()


def _inconclusive_note(log: Log) -> str:
    point_count = max(
        (len(series.finite()) for name in GOAL_METRICS if (series := log.series.get(name))), default=0
    )
    return (
        f"the goal metric has only {point_count} points, but {MIN_POINTS} are required"
        if point_count
        else "no accuracy and no reward"
    )


def _with_held_out(
    training_outcome: Outcome, goal: Series | None, log: Log, name: str, evaluations: Series, *, count: int
) -> Outcome:
    """Return the outcome of the training goal, unless evaluations clearly contradict it.

    The significance level is divided by the number `count` of evaluated sets, each of which may fall by
    chance.
    """
    held_out = judge_evaluations(name, evaluations, goal, log, training_outcome, alpha=FALL_ALPHA / count)
    if SEVERITY_BY_VERDICT[held_out.verdict] > SEVERITY_BY_VERDICT[training_outcome.verdict]:
        return held_out
    if (
        held_out.onset is not None
        and training_outcome.onset is not None
        and held_out.onset.sick < training_outcome.onset.sick
    ):
        return training_outcome._replace(onset=held_out.onset).with_window_before_the_onset()
    end, best = float(evaluations.values[-1]), held_out.best
    if training_outcome.verdict == "declining" and end > DECLINED_FRACTION * best:
        return training_outcome._replace(
            verdict="healthy",
            onset=None,
            note=f"{training_outcome.goal} fell, but the held-out accuracy did not",
        )
    if training_outcome.verdict == "collapsed" and end > DECLINED_FRACTION * best:
        return training_outcome._replace(note="the held-out accuracy has not fallen")
    # without a training goal there are no best and end values
    base_outcome = training_outcome if training_outcome.goal else held_out
    is_undecided = training_outcome.verdict == "inconclusive" and not training_outcome.may_have_fallen
    if is_undecided and float(np.ptp(evaluations.values)) == 0.0:
        return base_outcome._replace(verdict="never_learned", note="all evaluations are equal")
    if training_outcome.verdict in {"inconclusive", "never_learned"} and held_out.note == ROSE:
        return base_outcome._replace(verdict="healthy", note="by the held-out accuracy")
    return training_outcome
