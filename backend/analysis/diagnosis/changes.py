"""Detect lasting changes of a metric from its values in the healthy window of the run."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.analysis.diagnosis.log import Floats, Series
from backend.analysis.diagnosis.outcome import Interval
from backend.analysis.diagnosis.smoothing import MAD_TO_SIGMA, running_median

Direction = Literal["up", "down"]

SMOOTHING_POINTS = 5
"""Window of the running median in points, which one or two spikes do not affect."""

ALARM_SPREADS, CALM_SPREADS = 4.0, 2.0
"""Distances from the healthy median in spreads: a change must exceed ALARM_SPREADS,
and it begins after the last CALM_SPREADS point.
"""

MIN_BASELINE_POINTS = 4
"""Minimum number of points in the healthy window."""

MIN_SPREAD_FRACTION = 0.05
"""Minimum spread as a fraction of the healthy value."""

MIN_CHANGE_POINTS, MIN_CHANGE_POINTS_AT_END = 5, 3
"""Minimum number of points for which a change must last, and that at the end of the series."""

CERTAIN_FRACTION = 0.25

MIN_SETTING_FACTOR = 1.5
"""Minimum factor between adjacent points of a changed setting. Smaller changes belong to a schedule."""


class Sign(NamedTuple):
    """A type of change of a metric that is evidence for a cause."""

    metric: str
    direction: Direction
    factor: float
    """Required ratio of the smoothed to the healthy value: a minimum for `up`, a maximum for `down`."""
    floor: float
    """Minimum spread of the healthy window, in units of the metric."""
    is_log: bool = False
    """Whether the metric is compared on a log scale, because it has heavy tails. Zeros are left out."""
    is_setting: bool = False
    """Whether the config determines the metric, so that it jumps instead of fluctuating."""
    threshold: float | None = None
    """Value that the metric must also exceed (`up`) or fall below (`down`), or None."""
    margin: float = 0.0
    """Minimum difference from the healthy value, in units of the metric."""

    def alarm_value(self, healthy_value: float) -> float:
        """Return the value that a change must reach."""
        limits = [self.factor * healthy_value] + ([self.threshold] if self.threshold is not None else [])
        if self.direction == "up":
            return max(*limits, healthy_value + self.margin)
        return min(*limits, healthy_value - self.margin)


class Change(NamedTuple):
    """A lasting change of a metric from its healthy values."""

    metric: str
    healthy: float
    """Median in the healthy window."""
    extreme: float
    """Smoothed value after the onset that is farthest from the healthy value."""
    extreme_step: int
    spreads: float
    """Distance of `extreme` from the healthy value, in spreads of the healthy window."""
    onset: Interval
    alarm: int
    """First step at which the value had changed as much as the sign requires."""
    lasting_share: float
    """Fraction of the points from the alarm on at which the metric was changed."""


def change(sign: Sign, series: Series, healthy_interval: Interval) -> Change | None:
    """Return the first lasting change that a sign describes, or None.

    The series must be close to its healthy value before the change, so that a transient at the start does not
    count.
    """
    finite = series.finite()
    if sign.is_log:
        finite = Series(finite.steps[finite.values > 0], finite.values[finite.values > 0])
    is_base = (finite.steps >= healthy_interval.healthy) & (finite.steps <= healthy_interval.sick)
    if is_base.sum() < MIN_BASELINE_POINTS:
        return None
    healthy_median = float(np.median(finite.values[is_base]))
    smooth_values = finite.values if sign.is_setting else running_median(finite.values, SMOOTHING_POINTS)
    alarm_value = sign.alarm_value(healthy_median)
    is_up = sign.direction == "up"
    is_reached = smooth_values >= alarm_value if is_up else smooth_values <= alarm_value
    distance = _measure_distances(finite.values[is_base], smooth_values, sign)
    start = int(np.flatnonzero(is_base)[0])
    excursion = _first_excursion(distance, is_reached, start)
    if excursion is None:
        return None
    start_index, alarm = excursion
    extreme_index = alarm + int(np.argmax(distance[alarm:]))
    # A slow drift begins halfway, not at its first visible deviation.
    halfway = (healthy_median + alarm_value) / 2
    is_near = smooth_values <= halfway if is_up else smooth_values >= halfway
    calm_indices = np.flatnonzero((distance <= CALM_SPREADS)[:alarm] | is_near[:alarm])
    last_calm = int(calm_indices[-1]) if len(calm_indices) else start_index
    if sign.is_setting and not _jumps(smooth_values, last_calm, alarm):
        return None
    delay = 0 if sign.is_setting else SMOOTHING_POINTS // 2  # delay of the running median
    # An accelerating change is certain after a quarter of its size.
    is_quarter = np.abs(smooth_values - healthy_median) >= CERTAIN_FRACTION * abs(
        float(smooth_values[extreme_index]) - healthy_median
    )
    first_certain = (
        last_calm
        + 1
        + (0 if sign.is_setting else int(np.argmax(is_quarter[last_calm + 1 : extreme_index + 1])))
    )
    return Change(
        metric=sign.metric,
        healthy=healthy_median,
        extreme=float(smooth_values[extreme_index]),
        extreme_step=int(finite.steps[extreme_index]),
        spreads=float(distance[extreme_index]),
        onset=Interval(
            int(finite.steps[max(0, last_calm - delay)]),
            int(finite.steps[max(last_calm + 1, first_certain - delay)]),
        ),
        alarm=int(finite.steps[alarm]),
        lasting_share=float(np.mean(distance[alarm:] > CALM_SPREADS)),
    )


def _measure_distances(base: Floats, smooth_values: Floats, sign: Sign) -> Floats:
    """Return the distances from the healthy median in the direction of
    the sign, in spreads, of shape (N,).
    """
    if sign.is_log:
        base, smooth_values = np.log(base), np.log(smooth_values)
    middle = float(np.median(base))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(base - middle)))
    min_spread = 0.1 if sign.is_log else max(sign.floor, MIN_SPREAD_FRACTION * abs(middle))
    distance: Floats = (
        (smooth_values - middle) / max(spread, min_spread) * (1.0 if sign.direction == "up" else -1.0)
    )
    return distance


def _first_excursion(distances: Floats, is_reached: NDArray[np.bool_], start: int) -> tuple[int, int] | None:
    """Return the indices of the start and the alarm of the first lasting excursion after a calm point."""
    calm_indices = np.flatnonzero(distances[start:] <= CALM_SPREADS)
    if not len(calm_indices):
        return None
    search_start = max(start + int(calm_indices[0]), start + MIN_BASELINE_POINTS)
    is_out = distances > CALM_SPREADS
    is_out[:search_start] = False
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_out, [False]]).astype(int)))
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        alarms = np.flatnonzero((distances[first:end] > ALARM_SPREADS) & is_reached[first:end])
        min_length = MIN_CHANGE_POINTS_AT_END if end == len(distances) else MIN_CHANGE_POINTS
        if len(alarms) and end - first >= min_length:
            return int(first), int(first + alarms[0])
    return None


def _jumps(values: Floats, last_good: int, alarm: int) -> bool:
    """Return whether a setting jumps between two indices, unlike in a warm-up."""
    magnitudes, next_magnitudes = np.abs(values[last_good:alarm]), np.abs(values[last_good + 1 : alarm + 1])
    return bool((next_magnitudes > MIN_SETTING_FACTOR * magnitudes).any())
