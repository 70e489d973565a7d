"""Changes of one metric against the window in which the run was healthy: their size, onset and duration."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.analysis.diagnosis.log import Floats, Series
from backend.analysis.diagnosis.outcome import Interval
from backend.analysis.diagnosis.smoothing import MAD_TO_SIGMA, running_median

Direction = Literal["up", "down"]

SMOOTHED = 5
"""Points of the running median that is compared: one or two spikes change nothing."""

ALARM, CALM = 4.0, 2.0
"""Spreads of the healthy window: beyond the first a change counts, within the second it has not begun."""

MIN_BASELINE = 4
"""Points of a healthy window."""

MIN_SPREAD = 0.05
"""Smallest spread, as a share of the healthy value."""

MIN_LENGTH, MIN_LENGTH_AT_END = 5, 3
"""Points for which a change lasts, the second where the series ends with it."""

QUARTER = 0.25

JUMP = 1.5
"""Factor by which a setting changes from one point to the next; what changes by less is a schedule."""


class Sign(NamedTuple):
    """A change of one metric that points to a cause."""

    metric: str
    direction: Direction
    factor: float
    """Required ratio of the smoothed to the healthy value: a minimum for `up`, a maximum for `down`."""
    floor: float
    """Smallest spread to assume for the healthy window, in units of the metric."""
    is_log: bool = False
    """Whether the metric is positive with heavy tails; zeros are left out."""
    is_setting: bool = False
    """Whether the config sets the metric, so that it jumps and does not fluctuate."""
    threshold: float | None = None
    """Value that the metric must also rise above (`up`) or fall below (`down`); None for no threshold."""
    margin: float = 0.0
    """Smallest difference from the healthy value, in units of the metric."""

    def level(self, healthy: float) -> float:
        """Return the value from which on a change counts."""
        limits = [self.factor * healthy] + ([self.threshold] if self.threshold is not None else [])
        if self.direction == "up":
            return max(*limits, healthy + self.margin)
        return min(*limits, healthy - self.margin)


class Change(NamedTuple):
    """A metric that left the values it had while the run was healthy, for good or for a while."""

    metric: str
    healthy: float
    """Median while healthy."""
    extreme: float
    """Smoothed value after the onset that is farthest from the healthy value."""
    extreme_step: int
    spreads: float
    """How far that is, in spreads of the healthy window."""
    onset: Interval
    alarm: int
    """Step at which the value had changed as much as the sign requires."""
    lasting: float
    """Share of the steps from the alarm on at which it stayed changed."""


def change(sign: Sign, series: Series, healthy: Interval) -> Change | None:
    """Return the first change that a sign describes and that lasts; None if there is none.

    A series that comes from elsewhere in its first steps has not changed: it has to be calm before.
    """
    finite = series.finite()
    if sign.is_log:
        finite = Series(finite.steps[finite.values > 0], finite.values[finite.values > 0])
    is_base = (finite.steps >= healthy.healthy) & (finite.steps <= healthy.sick)
    if is_base.sum() < MIN_BASELINE:
        return None
    middle = float(np.median(finite.values[is_base]))
    smooth = finite.values if sign.is_setting else running_median(finite.values, SMOOTHED)
    level = sign.level(middle)
    is_up = sign.direction == "up"
    is_reached = smooth >= level if is_up else smooth <= level
    away = _away(finite.values[is_base], smooth, sign)
    start = int(np.flatnonzero(is_base)[0])
    excursion = _first_excursion(away, is_reached, start)
    if excursion is None:
        return None
    first, alarm = excursion
    farthest = alarm + int(np.argmax(away[alarm:]))
    # A slow drift has begun where it is halfway, not where it first shows.
    halfway = (middle + level) / 2
    is_near = smooth <= halfway if is_up else smooth >= halfway
    calm = np.flatnonzero((away <= CALM)[:alarm] | is_near[:alarm])
    good = int(calm[-1]) if len(calm) else first
    if sign.is_setting and not _jumps(smooth, good, alarm):
        return None
    late = 0 if sign.is_setting else SMOOTHED // 2  # of the running median
    # A change that gathers pace is beyond doubt once it has gone a quarter of its way.
    is_quarter = np.abs(smooth - middle) >= QUARTER * abs(float(smooth[farthest]) - middle)
    bad = good + 1 + (0 if sign.is_setting else int(np.argmax(is_quarter[good + 1 : farthest + 1])))
    return Change(
        metric=sign.metric,
        healthy=middle,
        extreme=float(smooth[farthest]),
        extreme_step=int(finite.steps[farthest]),
        spreads=float(away[farthest]),
        onset=Interval(int(finite.steps[max(0, good - late)]), int(finite.steps[max(good + 1, bad - late)])),
        alarm=int(finite.steps[alarm]),
        lasting=float(np.mean(away[alarm:] > CALM)),
    )


def _away(base: Floats, smooth: Floats, sign: Sign) -> Floats:
    """(N,) distance from the healthy median in the direction of the sign, in healthy spreads."""
    if sign.is_log:
        base, smooth = np.log(base), np.log(smooth)
    middle = float(np.median(base))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(base - middle)))
    least = 0.1 if sign.is_log else max(sign.floor, MIN_SPREAD * abs(middle))
    away: Floats = (smooth - middle) / max(spread, least) * (1.0 if sign.direction == "up" else -1.0)
    return away


def _first_excursion(away: Floats, is_reached: NDArray[np.bool_], start: int) -> tuple[int, int] | None:
    """Return (first place, place of the alarm) of the first lasting excursion after a calm point."""
    calm = np.flatnonzero(away[start:] <= CALM)
    if not len(calm):
        return None
    begin = max(start + int(calm[0]), start + MIN_BASELINE)
    is_out = away > CALM
    is_out[:begin] = False
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_out, [False]]).astype(int)))
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        alarms = np.flatnonzero((away[first:end] > ALARM) & is_reached[first:end])
        least = MIN_LENGTH_AT_END if end == len(away) else MIN_LENGTH
        if len(alarms) and end - first >= least:
            return int(first), int(first + alarms[0])
    return None


def _jumps(values: Floats, good: int, alarm: int) -> bool:
    """Return whether a setting changes at once between two places; a warm-up does not."""
    before, after = np.abs(values[good:alarm]), np.abs(values[good + 1 : alarm + 1])
    return bool((after > JUMP * before).any())
