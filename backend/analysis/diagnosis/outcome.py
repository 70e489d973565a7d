"""Outcome of a run: what became of its goal, and the numbers that the verdict rests on."""

import math
from typing import NamedTuple

from backend.config.causes import Verdict

FALLEN, STILL_FALLEN, DECLINED = 0.5, 0.6, 0.75
"""Shares of the best: below the first the goal has fallen, below the others it ends fallen or declined."""

SURE = 3.0
"""Standard errors of a difference that is no chance."""


class Interval(NamedTuple):
    """Steps between which something happened."""

    healthy: int
    """Last step at which it had surely not."""
    sick: int
    """First step at which it surely had."""

    @property
    def is_standing(self) -> bool:
        """Whether it was so from the first step on."""
        return self.healthy == self.sick

    @property
    def middle(self) -> float:
        """The step by which onsets are ordered."""
        return (self.healthy + self.sick) / 2


def between(onset: Interval | None) -> str:
    """Return the interval in words; empty if there is none."""
    if onset is None:
        return ""
    healthy, sick = onset
    return f"from step {sick}" if healthy == sick else f"between steps {healthy} and {sick}"


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

    def with_window_before_the_onset(self) -> "Outcome":
        """Return the outcome with a healthy window that ends before the onset."""
        if self.onset is None or self.healthy is None:
            return self
        first, last = self.healthy
        last = min(last, self.onset.healthy)
        return self._replace(healthy=Interval(min(first, last), last))
