"""The outcome of a run: the verdict on its goal, and the numbers on which it is based."""

import math
from typing import NamedTuple

from backend.config.causes import Verdict

FALLEN_FRACTION, STILL_FALLEN_FRACTION, DECLINED_FRACTION = 0.5, 0.6, 0.75
"""Fractions of the best value below which the goal has fallen, and
below which its end is fallen or declined.
"""

MIN_SIGNIFICANT_ERRORS = 3.0
"""Number of standard errors above which a difference is considered significant."""


class Interval(NamedTuple):
    """A pair of steps between which a change began."""

    healthy: int
    """Last step at which it had certainly not begun."""
    sick: int
    """First step at which it had certainly begun."""

    @property
    def is_standing(self) -> bool:
        """Whether the condition exists from the first step."""
        return self.healthy == self.sick

    @property
    def middle(self) -> float:
        """Middle of the interval, by which onsets are ordered."""
        return (self.healthy + self.sick) / 2


def describe_interval(onset: Interval | None) -> str:
    """Return a description of the interval, or "" if there is none."""
    if onset is None:
        return ""
    healthy, sick = onset
    return f"from step {sick}" if healthy == sick else f"between steps {healthy} and {sick}"


MAY_HAVE_FALLEN = "the last points are far below the best, but too few to tell a fall from noise"
"""Note of an inconclusive outcome whose end is low."""


class Outcome(NamedTuple):
    """The verdict on the goal, and the numbers on which it is based."""

    verdict: Verdict
    goal: str
    """Metric that was judged, or "" if there is none."""
    start: float = math.nan
    best: float = math.nan
    """Maximum of the smoothed goal, corrected for the selection of the best of many windows."""
    best_step: int = 0
    end: float = math.nan
    onset: Interval | None = None
    healthy: Interval | None = None
    """First and last step of the healthy window, with which other metrics are compared."""
    note: str = ""

    @property
    def may_have_fallen(self) -> bool:
        """Whether the goal rose and its end is low, which noise may explain."""
        return self.note == MAY_HAVE_FALLEN and self.best > self.start

    def with_window_before_the_onset(self) -> "Outcome":
        """Return the outcome with a healthy window that ends before the onset."""
        if self.onset is None or self.healthy is None:
            return self
        first_step, last_step = self.healthy
        last_step = min(last_step, self.onset.healthy)
        return self._replace(healthy=Interval(min(first_step, last_step), last_step))
