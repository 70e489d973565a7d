"""Changes of one metric against the window in which the run was healthy: their size, onset and duration."""

import math
from typing import Literal, NamedTuple

import numpy as np

from backend.analysis.diagnosis.log import Floats, Series
from backend.analysis.diagnosis.outcome import Interval
from backend.analysis.diagnosis.smoothing import MAD_TO_SIGMA, running_median

Direction = Literal["up", "down"]

SMOOTHED = 5
"""Points of the running median that is looked at: one or two spikes change nothing."""

ALARM, CALM = 4.0, 2.0
"""Spreads of the healthy window: beyond the first a change counts, within the second it has not begun."""

MIN_BASELINE = 4
"""Points of a healthy window."""

MIN_SPREAD = 0.05
"""Smallest spread, as a share of the healthy value."""


class Change(NamedTuple):
    """A metric that left the values it had while the run was healthy."""

    metric: str
    healthy: float
    """Median while healthy."""
    extreme: float
    """Smoothed value after the onset that is farthest from the healthy value."""
    spreads: float
    """How far that is, in spreads of the healthy window."""
    onset: Interval
    alarm: int
    """Step at which it was beyond doubt."""
    lasting: float
    """Share of the steps from the alarm on at which it stayed changed."""


def change(
    metric: str,
    series: Series,
    healthy: Interval,
    direction: Direction,
    *,
    floor: float,
    is_log: bool = False,
    smoothed: int = SMOOTHED,
) -> Change | None:
    """Return the first lasting change in one direction after the healthy window has begun.

    `floor` is the smallest spread, in units of the metric. `is_log` for positive metrics with heavy tails.
    `smoothed` points make a running median; 1 for a setting, which does not fluctuate.
    """
    finite = series.finite()
    values = np.log(np.maximum(finite.values, 1e-12)) if is_log else finite.values
    is_base = (finite.steps >= healthy.healthy) & (finite.steps <= healthy.sick)
    if is_base.sum() < MIN_BASELINE:
        return None
    middle, spread = _baseline(values[is_base], floor, is_log=is_log)
    smooth = running_median(values, smoothed)
    away = (smooth - middle) / spread * (1.0 if direction == "up" else -1.0)
    away[: int(np.flatnonzero(is_base)[0]) + MIN_BASELINE] = 0.0
    index = next((at for at in np.flatnonzero(away > ALARM) if (away[at : at + 3] > CALM).all()), None)
    if index is None:
        return None
    farthest = index + int(np.argmax(away[index:]))
    unlog = math.exp if is_log else float
    return Change(
        metric=metric,
        healthy=unlog(middle),
        extreme=unlog(float(smooth[farthest])),
        spreads=float(away[farthest]),
        onset=_onset(finite, away, int(index), late=smoothed // 2),
        alarm=int(finite.steps[index]),
        lasting=float(np.mean(away[index:] > CALM)),
    )


def _baseline(values: Floats, floor: float, *, is_log: bool) -> tuple[float, float]:
    middle = float(np.median(values))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(values - middle)))
    least = 0.1 if is_log else max(floor, MIN_SPREAD * abs(middle))
    return middle, max(spread, least)


def _onset(series: Series, away: Floats, index: int, *, late: int) -> Interval:
    """Return the interval from the last calm point to the next; a running median lags by half its width."""
    calm = np.flatnonzero(away[:index] <= CALM)
    last = int(calm[-1]) if len(calm) else 0
    first_changed = min(last + 1, index)
    return Interval(int(series.steps[max(0, last - late)]), int(series.steps[first_changed]))
