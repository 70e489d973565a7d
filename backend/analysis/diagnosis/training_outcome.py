"""Judge the outcome of a run by a goal with a point at nearly every step."""

import math
from typing import Any, NamedTuple

import numpy as np

from backend.analysis.diagnosis.first_steps import changed_at_once
from backend.analysis.diagnosis.held_out_outcome import evaluation_error, find_unit
from backend.analysis.diagnosis.log import Floats, Log, Series
from backend.analysis.diagnosis.outcome import (
    DECLINED_FRACTION,
    FALLEN_FRACTION,
    MAY_HAVE_FALLEN,
    MIN_SIGNIFICANT_ERRORS,
    STILL_FALLEN_FRACTION,
    Interval,
    Outcome,
)
from backend.analysis.diagnosis.significance import FALL_ALPHA, end_p_value, fall_p_value, rise_p_value
from backend.analysis.diagnosis.smoothing import luck_of_best, noise, trailing_mean, window_for

MIN_FALL_POINTS = 5
"""Minimum number of points for which a fall must last."""

GOOD_ENOUGH_ACCURACY = 0.9
"""Accuracy from which there is little left to learn."""

MIN_ACCURACY_RISE, MIN_REWARD_RISE = 0.05, 0.1
"""Rises below which a goal never learned, as an accuracy and as a fraction of the reward's size."""

RISE_ALPHA = 0.01
"""Significance level of the test for a rise."""

DOUBT_ALPHA = 0.05
"""Significance level of a fall to the end at which a run is not called healthy any more."""

MIN_POINTS_OF_NO_RISE = 12
"""Minimum number of points from which a rise can be excluded."""

ONE_SIDED_ERRORS = 1.645
"""Number of standard errors of a one-sided upper bound at 95 %."""


def judge_goal(name: str, series: Series, log: Log) -> Outcome:
    """Return the outcome according to one series with many points."""
    values = series.values
    is_accuracy = "accuracy" in name
    least_noise = _least_noise(name, values, log)
    sigma = max(noise(values), least_noise)
    scale = find_unit(values) if is_accuracy else _usual_size(values)
    window = window_for(sigma, scale=scale, count=len(values))
    error = sigma / math.sqrt(window)
    smooth_values = trailing_mean(values, window)
    trailing_means = smooth_values.copy()
    trailing_means[: window - 1] = smooth_values[window - 1]  # means of fewer points are noisier
    start, end = float(smooth_values[window - 1]), float(smooth_values[-1])
    goal = _Goal(
        series,
        trailing_means,
        window,
        luck=error * luck_of_best(len(values) / window),
        zero=_find_zero_value(values, start),
    )
    outcome = Outcome("healthy", name, start, goal.best(), goal.step_of_best(), end)
    outcome = outcome._replace(healthy=_window(series, trailing_means, goal))
    min_loss = MIN_SIGNIFICANT_ERRORS * error * math.sqrt(2)
    fall = _find_fall_index(goal, min_loss)
    loss = outcome.best - end
    is_far_below = loss > max(min_loss, (1 - DECLINED_FRACTION) * goal.size(outcome.best))
    fall_p = fall_p_value(values) if fall is not None or is_far_below else 1.0
    if fall is not None and fall_p <= FALL_ALPHA:
        goal_before_fall = goal.up_to(fall)
        best = goal_before_fall.best()
        is_fallen = best - end > (1 - STILL_FALLEN_FRACTION) * goal.size(best)
        outcome = outcome._replace(
            best=best, best_step=goal_before_fall.step_of_best(), onset=_onset(goal, fall)
        )
        outcome = outcome._replace(verdict="collapsed" if is_fallen else "recovered")
        return outcome.with_window_before_the_onset()
    if early_death := _early_death(values, _least_noise(name, values[:1], log), log):
        return _dead_early(name, series, early_death)
    end_p = end_p_value(values) if is_far_below else 1.0
    if is_far_below and min(fall_p, end_p) <= FALL_ALPHA:
        is_high = trailing_means >= outcome.best - (1 - DECLINED_FRACTION) * goal.size(outcome.best)
        onset = _onset(goal, min(int(np.flatnonzero(is_high)[-1]) + 1, len(values) - 1))
        return outcome._replace(verdict="declining", onset=onset).with_window_before_the_onset()
    learned = _judge_learning(outcome, values, sigma, scale, is_accuracy=is_accuracy)
    may_hide_a_fall = learned.verdict == "inconclusive" or (
        learned.verdict == "healthy" and end_p <= DOUBT_ALPHA
    )
    is_in_doubt = is_far_below and may_hide_a_fall
    return learned._replace(verdict="inconclusive", note=MAY_HAVE_FALLEN) if is_in_doubt else learned


class _Goal(NamedTuple):
    """A smoothed goal."""

    series: Series
    trailing_means: Floats
    """Means of the last `window` values, of shape (N,)."""
    window: int
    luck: float
    """Amount by which the best of many windows exceeds their mean by chance."""
    zero: float
    """Value for a policy that has learned nothing."""

    def up_to(self, index: int) -> "_Goal":
        """Return the points before an index."""
        series = Series(self.series.steps[:index], self.series.values[:index])
        return self._replace(series=series, trailing_means=self.trailing_means[:index])

    def best(self) -> float:
        """Return the best value, corrected for luck, but at least the mean."""
        return max(float(self.series.values.mean()), float(self.trailing_means.max()) - self.luck)

    def step_of_best(self) -> int:
        """Return the last step of the best window."""
        return int(self.series.steps[int(np.argmax(self.trailing_means))])

    def size(self, best: Any) -> Any:
        """Return how much a goal with this value can lose, also for rewards that may be negative."""
        return np.maximum(best - self.zero, np.abs(best))


def _usual_size(values: Floats) -> float:
    """Return the size of a reward: its median, or the range of 90 % of its values if that is larger."""
    low, middle, high = np.quantile(values, (0.05, 0.5, 0.95))
    return float(max(abs(middle), high - low)) or 1.0


def _find_zero_value(values: Floats, start: float) -> float:
    """Return the value for nothing learned: 0, or the start of a reward that may be negative."""
    return min(0.0, start) if float(values.min()) < 0 else 0.0


def _dead_early(name: str, series: Series, index: int) -> Outcome:
    onset = Interval(int(series.steps[0]), int(series.steps[index]))
    first_value, end = float(series.values[0]), float(series.values[-5:].mean())
    first_step = int(series.steps[0])
    return Outcome(
        "collapsed", name, first_value, first_value, first_step, end, onset, note="within its first steps"
    )


def _early_death(values: Floats, error: float, log: Log) -> int | None:
    """Return the index from which the goal has lost half of its first value permanently, or None.

    The first value is only trusted if the config contains the number of completions of which it is the mean,
    or if the behaviour of the policy also changed immediately.
    """
    later_means = trailing_mean(values, 3)[4:]
    if not error or not len(later_means) or values[0] - float(later_means.max()) < 4 * error:
        return None
    if not log.config and changed_at_once(log) is None:
        return None
    if float(later_means.max()) >= FALLEN_FRACTION * float(values[0]):
        return None
    return int(np.flatnonzero(values < FALLEN_FRACTION * values[0])[0])


def _judge_learning(
    outcome: Outcome, values: Floats, sigma: float, scale: float, *, is_accuracy: bool
) -> Outcome:
    """Return a healthy outcome if the goal rose or began near the top.

    Otherwise the verdict is never learned, or inconclusive if noise may hide a rise.
    """
    if is_accuracy and outcome.best >= GOOD_ENOUGH_ACCURACY * scale:
        return outcome
    if rise_p_value(values) <= RISE_ALPHA:
        return outcome
    bound = _largest_rise(values, sigma)
    if (
        len(values) >= MIN_POINTS_OF_NO_RISE
        and bound < (MIN_ACCURACY_RISE if is_accuracy else MIN_REWARD_RISE) * scale
    ):
        return outcome._replace(verdict="never_learned", note=f"it rose by at most {bound:.2g} (95 %)")
    if len(values) < MIN_POINTS_OF_NO_RISE:
        note = f"its {len(values)} points are too few to exclude a rise"
        return outcome._replace(verdict="inconclusive", note=note)
    note = f"it may have risen by up to {bound:.2g} (95 %), which its noise hides"
    return outcome._replace(verdict="inconclusive", note=note)


def _largest_rise(values: Floats, sigma: float) -> float:
    """Return the 95 % upper bound of the rise from the steps before any point to those after it."""
    count = len(values)
    min_size = max(3, count // 8)
    sizes = np.arange(min_size, count - min_size + 1)
    sums = np.cumsum(values)
    means_before, means_after = sums[sizes - 1] / sizes, (sums[-1] - sums[sizes - 1]) / (count - sizes)
    margin = ONE_SIDED_ERRORS * sigma * np.sqrt(1 / sizes + 1 / (count - sizes))
    return max(0.0, float(np.max(means_after - means_before + margin)))


def _least_noise(name: str, values: Floats, log: Log) -> float:
    """Return the sampling error of a step, or 0 if the number of completions is unknown.

    Completions of a group are assumed to have a correlation of 1/2.
    """
    if "accuracy" not in name:
        return 0.0
    unit = find_unit(values)
    p = float(np.clip(np.median(values) / unit, 0.02, 0.98))
    if name.startswith("eval/"):
        return unit * evaluation_error(p, log)
    prompts, group = log.setting("sampling.prompts_per_step"), log.setting("sampling.group_size")
    if not prompts or not group:
        return 0.01 * unit
    return unit * math.sqrt(p * (1 - p) * (1 + 0.5 * (group - 1)) / (prompts * group))


def _find_fall_index(goal: _Goal, min_certainty: float) -> int | None:
    """Return the index from which half of the best value so far is lost for at least MIN_FALL_POINTS points,
    or None.
    """
    best = np.maximum.accumulate(goal.trailing_means) - goal.luck
    loss = best - goal.trailing_means
    is_low = (loss > (1 - FALLEN_FRACTION) * goal.size(best)) & (loss > min_certainty)
    for index in np.flatnonzero(is_low):
        next_points = is_low[index : index + MIN_FALL_POINTS]
        if next_points.all() and len(next_points) >= min(MIN_FALL_POINTS, 3):
            return int(index)
    return None


def _onset(goal: _Goal, fall: int) -> Interval:
    """Return the interval of steps after the best at which a single change of the mean explains the fall.

    The interval contains all steps within 2 units of the maximum log-likelihood.
    """
    series = goal.series
    best = int(np.argmax(goal.trailing_means[: max(1, fall)]))
    first_index = max(best - 1, fall - 4 * goal.window - 20, 0)
    values = series.values[first_index : fall + MIN_FALL_POINTS]
    split_points = np.arange(2, len(values) - 1)
    if not len(split_points):
        return Interval(int(series.steps[first_index]), int(series.steps[fall]))
    squares = np.array(
        [_squares(values[:split_point]) + _squares(values[split_point:]) for split_point in split_points]
    )
    likelihood = -len(values) / 2 * np.log(np.maximum(squares, 1e-9))
    likely_indices = first_index + split_points[likelihood >= likelihood.max() - 2.0]
    return Interval(int(series.steps[likely_indices[0] - 1]), int(series.steps[likely_indices[-1]]))


def _squares(values: Floats) -> float:
    return float(np.sum((values - values.mean()) ** 2))


def _window(series: Series, smooth_values: Floats, goal: _Goal) -> Interval:
    """Return the healthy window, which ends when the goal first comes close to its best."""
    count = max(15, len(series) // 10)
    near_best = np.flatnonzero(smooth_values >= goal.best() - 0.1 * goal.size(goal.best()))
    last_index = max(int(near_best[0]) if len(near_best) else 0, min(count, len(series)) - 1)
    return Interval(int(series.steps[max(0, last_index - count + 1)]), int(series.steps[last_index]))
