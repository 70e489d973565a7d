"""The goal of a run and what became of it: what is wanted rose and stayed, fell, or never rose."""

import math
from typing import NamedTuple

import numpy as np

from backend.analysis.diagnosis.log import Floats, Log, Series
from backend.analysis.diagnosis.smoothing import luck_of_best, noise, robust_noise, trailing_mean, window_for
from backend.config.causes import Verdict

GOALS = ("reward/accuracy", "eval/accuracy", "reward/correctness/mean", "reward/mean")
"""Training accuracy has a point at every step; the held-out accuracy decides beside it."""

MIN_POINTS = 12
"""Smallest number of the goal's points for which a verdict is given."""

FALLEN, STILL_FALLEN, DECLINED = 0.5, 0.6, 0.75
"""Shares of the best: below the first the goal has fallen, below the others it ends fallen or declined."""

HOLD = 5
"""Points for which a fall lasts before it counts."""

SURE = 3.0
"""Standard errors of a difference that is no chance."""

GOOD_ENOUGH = 0.9
"""An accuracy from which on there is little left to learn."""

LITTLE = 0.15
"""Smallest rise of the goal that counts as learning, as a share of the scale."""

EVALUATED = 128
"""Assumed number of problems of an evaluation if the config does not say it."""


class Interval(NamedTuple):
    """Steps between which something happened."""

    healthy: int
    """Last step at which it had surely not."""
    sick: int
    """First step at which it surely had."""


class Outcome(NamedTuple):
    """Verdict on the goal, and the numbers it rests on."""

    verdict: Verdict
    goal: str
    """The metric that was judged; empty if there is none."""
    start: float = math.nan
    best: float = math.nan
    """Best value of the smoothed goal, corrected for the luck of the best of many windows."""
    best_step: int = 0
    end: float = math.nan
    onset: Interval | None = None
    healthy: Interval | None = None
    """First and last step of the window that other metrics are compared with."""
    note: str = ""


def judge(log: Log) -> Outcome:
    """Return the outcome by the training goal and, where there are evaluations, by the held-out one."""
    goal_series = log.find(*GOALS, least=MIN_POINTS)
    evaluated = log.find("eval/accuracy", least=3)
    trained = (
        judge_series(*goal_series, log) if goal_series else Outcome("inconclusive", "", note=_too_few(log))
    )
    if evaluated is None or trained.goal == "eval/accuracy":
        return trained
    return _with_held_out(trained, goal_series[1] if goal_series else None, evaluated[1], log)


def _too_few(log: Log) -> str:
    most = max((len(series.finite()) for name in GOALS if (series := log.series.get(name))), default=0)
    return f"{most} points of a goal; {MIN_POINTS} are needed" if most else "no accuracy and no reward"


def judge_series(name: str, series: Series, log: Log) -> Outcome:
    """Return the outcome by one series of many points."""
    values = series.values - _zero(series.values)
    sigma = max(noise(values), _least_noise(name, values, log))
    scale = 1.0 if "accuracy" in name else float(np.ptp(values)) or 1.0
    window = window_for(sigma, scale=scale, count=len(values))
    error = sigma / math.sqrt(window)
    smooth = trailing_mean(values, window)
    settled = smooth.copy()
    settled[: window - 1] = smooth[window - 1]  # shorter means are noisier
    best_index = int(np.argmax(settled))
    best = max(float(values.mean()), float(settled[best_index]) - error * luck_of_best(len(values) / window))
    start, end = float(smooth[window - 1]), float(smooth[-1])
    sure = SURE * error * math.sqrt(2)
    fall = _fall(settled, error * luck_of_best(len(values) / window), sure)
    if fall is None and (early := _early_death(values, _least_noise(name, values[:1], log))):
        onset = Interval(int(series.steps[0]), int(series.steps[early]))
        first = float(series.values[0])
        return Outcome(
            "collapsed", name, first, first, int(series.steps[0]), float(series.values[-5:].mean()), onset,
            note="within its first steps",
        )  # fmt: skip
    outcome = Outcome(
        "healthy",
        name,
        start,
        best,
        int(series.steps[best_index]),
        end,
        healthy=_window(series, settled, best),
    )
    if fall is not None:
        still = end < STILL_FALLEN * best
        onset = _onset(series, fall, window)
        return _before(outcome._replace(verdict="collapsed" if still else "recovered", onset=onset))
    if best - end > sure and end < DECLINED * best:
        below = np.flatnonzero(settled >= DECLINED * best)
        onset = _onset(series, min(int(below[-1]) + 1, len(values) - 1), window)
        return _before(outcome._replace(verdict="declining", onset=onset))
    return _learned(outcome, values, smooth, error, scale)


def _early_death(values: Floats, error: float) -> int | None:
    """Place from which on a goal that had a value at first has surely lost half of it for ever."""
    later = trailing_mean(values, 3)[4:]
    if not error or not len(later) or values[0] - float(later.max()) < 4 * error:
        return None
    if float(later.max()) >= FALLEN * float(values[0]):
        return None
    return int(np.flatnonzero(values < FALLEN * values[0])[0])


def _learned(outcome: Outcome, values: Floats, smooth: Floats, error: float, scale: float) -> Outcome:
    """Healthy if the goal rose or began near the top; inconclusive if it may have risen within its noise."""
    if scale == 1.0 and outcome.best >= GOOD_ENOUGH:
        return outcome
    began = float(np.mean(values[:3]))
    doubt = math.hypot(error, noise(values) / math.sqrt(3))
    if outcome.best - min(began, outcome.start) > 2 * doubt:
        return outcome
    most = float(smooth.max()) - began + 2 * doubt
    if most < LITTLE * scale:
        return outcome._replace(verdict="never_learned")
    return outcome._replace(
        verdict="inconclusive", note="it may have learned less than the noise of its steps shows"
    )


def _zero(values: Floats) -> float:
    """What counts as nothing: 0, or the lowest value of a reward that may be negative."""
    low = float(values.min())
    return low if low < 0 else 0.0


def _least_noise(name: str, values: Floats, log: Log) -> float:
    """A step's sampling error where its size is known; completions of a group are alike (correlation 1/2)."""
    if "accuracy" not in name:
        return 0.0
    p = float(np.clip(np.median(values), 0.02, 0.98))
    if name == "eval/accuracy":
        return math.sqrt(p * (1 - p) / (log.setting("evaluation.prompts") or EVALUATED))
    prompts, group = log.setting("sampling.prompts_per_step"), log.setting("sampling.group_size")
    if not prompts or not group:
        return 0.01
    return math.sqrt(p * (1 - p) * (1 + 0.5 * (group - 1)) / (prompts * group))


def _fall(smooth: Floats, luck: float, sure: float) -> int | None:
    """Place from which on the goal stays below half of its best so far, long enough to be no chance."""
    best = np.maximum.accumulate(smooth) - luck
    is_low = (smooth < FALLEN * best) & (best - smooth > sure)
    for first in np.flatnonzero(is_low):
        ahead = is_low[first : first + HOLD]
        if ahead.all() and len(ahead) >= min(HOLD, 3):
            return int(first)
    return None


def _onset(series: Series, fall: int, window: int) -> Interval:
    """The steps at which one change of the mean explains the fall, within 2 units of log-likelihood."""
    first = max(0, fall - 4 * window - 20)
    values = series.values[first : fall + HOLD]
    places = np.arange(2, len(values) - 1)
    if not len(places):
        return Interval(int(series.steps[first]), int(series.steps[fall]))
    squares = np.array([_squares(values[:at]) + _squares(values[at:]) for at in places])
    likelihood = -len(values) / 2 * np.log(np.maximum(squares, 1e-9))
    near = first + places[likelihood >= likelihood.max() - 2.0]
    return Interval(int(series.steps[near[0] - 1]), int(series.steps[near[-1]]))


def _squares(values: Floats) -> float:
    return float(np.sum((values - values.mean()) ** 2))


def _window(series: Series, smooth: Floats, best: float) -> Interval:
    """Return the steps that end where the goal first comes near its best."""
    count = max(15, len(series) // 10)
    near = np.flatnonzero(smooth >= 0.9 * best)
    last = max(int(near[0]) if len(near) else 0, min(count, len(series)) - 1)
    return Interval(int(series.steps[max(0, last - count + 1)]), int(series.steps[last]))


def _before(outcome: Outcome) -> Outcome:
    """Return the outcome with a healthy window that ends before the onset."""
    if outcome.onset is None or outcome.healthy is None:
        return outcome
    first, last = outcome.healthy
    last = min(last, outcome.onset.healthy)
    return outcome._replace(healthy=Interval(min(first, last), last))


def _with_held_out(trained: Outcome, goal: Series | None, evaluations: Series, log: Log) -> Outcome:
    """Evaluations overrule the training goal if they are surely better or worse than it says."""
    held_out = _of_evaluations(evaluations, log, trained)
    if held_out.onset is not None and not _fell_too(goal, held_out.onset):
        held_out = _of_evaluations(evaluations, log, trained, least=robust_noise(evaluations.values))
    if SEVERITY[held_out.verdict] > SEVERITY[trained.verdict]:
        return held_out
    end, best = float(evaluations.values[-1]), held_out.best
    if trained.verdict == "declining" and end > DECLINED * best:
        return trained._replace(
            verdict="healthy", onset=None, note=f"{trained.goal} fell, the held-out accuracy did not"
        )
    if trained.verdict == "collapsed" and end > DECLINED * best:
        return trained._replace(note="the held-out accuracy has not fallen")
    told = trained if trained.goal else held_out  # too few points of a goal have no best and no end
    if trained.verdict == "inconclusive" and float(np.ptp(evaluations.values)) == 0.0:
        return told._replace(verdict="never_learned", note="all evaluations are equal")
    if trained.verdict in {"inconclusive", "never_learned"} and held_out.note == ROSE:
        return told._replace(verdict="healthy", note="by the held-out accuracy")
    return trained


ROSE = "rose"
SEVERITY: dict[Verdict, int] = {
    "healthy": 0, "never_learned": 0, "inconclusive": 0, "recovered": 1, "declining": 2, "collapsed": 3
}  # fmt: skip


def _fell_too(goal: Series | None, onset: Interval) -> bool:
    """Return whether the training goal is lower after an onset than before it, as far as it can be seen."""
    if goal is None:
        return False
    before, after = goal.between(-math.inf, onset.healthy).values, goal.between(onset.sick, math.inf).values
    if len(before) < 3 or len(after) < 3:
        return True
    late = before[-2 * len(after) :]
    error = noise(goal.values) * math.hypot(1 / math.sqrt(len(late)), 1 / math.sqrt(len(after)))
    return bool(late.mean() - after.mean() > error)


def _of_evaluations(evaluations: Series, log: Log, trained: Outcome, least: float = 0.0) -> Outcome:
    """The outcome by a few points, each the share of so many problems; `least` is their noise at least."""
    values = evaluations.values
    p = float(np.clip(np.median(values), 0.02, 0.98))
    sampled = math.sqrt(p * (1 - p) / (log.setting("evaluation.prompts") or EVALUATED))
    error = max(sampled, least)
    best_index = int(np.argmax(values))
    best = float(values[best_index]) - error * luck_of_best(len(values))
    outcome = trained._replace(
        verdict="healthy", goal="eval/accuracy", start=float(values[0]), best=best,
        best_step=int(evaluations.steps[best_index]), end=float(values[-1]), onset=None,
        note=ROSE if best - values[0] > 2 * sampled * math.sqrt(2) else "",
    )  # fmt: skip
    after = values[best_index + 1 :]
    last_two = after[-2:]
    drop, sure = best - float(last_two.mean()) if len(after) else 0.0, SURE * error * math.sqrt(1.5)
    if len(last_two) < 2 or drop < sure:
        return outcome
    is_low = best - after > 2 * error * math.sqrt(2)
    bad = best_index + 1 + int(np.flatnonzero(is_low)[0])
    onset = Interval(int(evaluations.steps[bad - 1]), int(evaluations.steps[bad]))
    fallen = outcome._replace(onset=onset, healthy=trained.healthy or Interval(0, onset.healthy))
    if (last_two < FALLEN * best).all():
        return _before(fallen._replace(verdict="collapsed", note="by the held-out accuracy"))
    if (last_two < DECLINED * best).all():
        return _before(fallen._replace(verdict="declining", note="by the held-out accuracy"))
    return outcome
