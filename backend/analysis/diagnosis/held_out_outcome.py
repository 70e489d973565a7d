"""Judge the outcome of a run by a few held-out evaluations."""

import math

import numpy as np

from backend.analysis.diagnosis.log import Floats, Log, Series
from backend.analysis.diagnosis.outcome import (
    DECLINED_FRACTION,
    FALLEN_FRACTION,
    MIN_SIGNIFICANT_ERRORS,
    Interval,
    Outcome,
)
from backend.analysis.diagnosis.significance import end_p_value
from backend.analysis.diagnosis.smoothing import luck_of_best, noise

ASSUMED_PROBLEMS = 128
"""Assumed number of problems in an evaluation if the config does not contain it."""

FALL_ALPHA = 0.02
"""Significance level of the test for a fall of at least MIN_TESTED_EVALUATIONS evaluations."""

MIN_TESTED_EVALUATIONS = 6
"""Minimum number of evaluations for a permutation test, because fewer have too few permutations."""

ROSE = "rose"


def evaluation_error(accuracy: float, log: Log) -> float:
    """Return the standard error of an evaluation with this accuracy. Both are fractions."""
    return math.sqrt(accuracy * (1 - accuracy) / (log.setting("evaluation.prompts") or ASSUMED_PROBLEMS))


def find_unit(values: Floats) -> float:
    """Return 1 if accuracies are fractions, or 100 if they are percentages."""
    return 100.0 if float(values.max(initial=0.0)) > 1.5 else 1.0


def judge_evaluations(
    name: str,
    evaluations: Series,
    goal: Series | None,
    log: Log,
    training_outcome: Outcome,
    *,
    alpha: float = FALL_ALPHA,
) -> Outcome:
    """Return the outcome according to the evaluations of one set. `training_outcome` is that of the training
    goal.
    """
    values = evaluations.values
    unit = find_unit(values)
    sampling_error = unit * evaluation_error(float(np.clip(np.median(values) / unit, 0.02, 0.98)), log)
    outcome = _fall(evaluations, sampling_error, training_outcome._replace(goal=name))
    if outcome.onset is None or _is_no_chance(evaluations, outcome, sampling_error, goal, alpha):
        return outcome
    return outcome._replace(verdict="healthy", onset=None)


def _is_no_chance(
    evaluations: Series, outcome: Outcome, sampling_error: float, goal: Series | None, alpha: float
) -> bool:
    """Return whether a fall is significant by a permutation test, or for
    few evaluations by the training goal.
    """
    if len(evaluations) >= MIN_TESTED_EVALUATIONS:
        return end_p_value(evaluations.values) <= alpha
    if outcome.onset is None or _fell_too(goal, outcome.onset):
        return True
    noisy_outcome = _fall(evaluations, max(sampling_error, noise(evaluations.values)), outcome)
    return noisy_outcome.onset is not None


def _fall(evaluations: Series, error: float, training_outcome: Outcome) -> Outcome:
    """Return the outcome if each evaluation has this standard error."""
    values = evaluations.values
    best_index = int(np.argmax(values))
    best = float(values[best_index]) - error * luck_of_best(len(values))
    has_risen = best - float(values[0]) > 2 * error * math.sqrt(2)
    outcome = training_outcome._replace(
        verdict="healthy", start=float(values[0]), best=best,
        best_step=int(evaluations.steps[best_index]), end=float(values[-1]), onset=None,
        note=ROSE if has_risen else "",
    )  # fmt: skip
    later_values = values[best_index + 1 :]
    if len(later_values) < 2:
        return outcome
    end = float(later_values[-2:].mean())
    if best - end < MIN_SIGNIFICANT_ERRORS * error * math.sqrt(1.5) or end >= DECLINED_FRACTION * best:
        return outcome
    fallen_index = best_index + 1 + int(np.flatnonzero(best - later_values > 2 * error * math.sqrt(2))[0])
    is_near_best = best - values[best_index:fallen_index] <= error * math.sqrt(2)
    healthy_index = best_index + int(np.flatnonzero(is_near_best)[-1])
    onset = Interval(int(evaluations.steps[healthy_index]), int(evaluations.steps[fallen_index]))
    is_collapse = bool((later_values[-2:] < FALLEN_FRACTION * best).all())
    fallen = outcome._replace(
        verdict="collapsed" if is_collapse else "declining", onset=onset, note="by the held-out accuracy",
        healthy=training_outcome.healthy or Interval(0, onset.healthy),
    )  # fmt: skip
    return fallen.with_window_before_the_onset()


def _fell_too(goal: Series | None, onset: Interval) -> bool:
    """Return whether the training goal is lower after an onset than
    before it. True if there are few points.
    """
    if goal is None:
        return False
    values_before, values_after = (
        goal.between(-math.inf, onset.healthy).values,
        goal.between(onset.sick, math.inf).values,
    )
    if len(values_before) < 3 or len(values_after) < 3:
        return True
    before_onset = values_before[-2 * len(values_after) :]
    error = noise(goal.values) * math.hypot(
        1 / math.sqrt(len(before_onset)), 1 / math.sqrt(len(values_after))
    )
    return bool(before_onset.mean() - values_after.mean() > error)
