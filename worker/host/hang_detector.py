"""The hang detector: the time since a trainer's last step, compared with what its steps used to take.

A heart can beat while the work stands still: the lease is renewed by the supervisor, steps are not.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class HangLimits:
    """The time for which a trainer may be silent."""

    least_seconds: float = 600.0
    """No silence shorter than this counts."""

    steps: float = 20.0
    """And none shorter than so many of its median steps."""

    gaps: float = 3.0
    """And none shorter than so many of its longest silence so far, which may have held an evaluation."""

    start_seconds: float = 3600.0
    """Until the first progress it loads, fetches and evaluates for as long as this."""


class HangDetector:
    """The supervisor's observations of one trainer's steps."""

    def __init__(self, hang_limits: HangLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._hang_limits = hang_limits
        self._clock = clock
        self._moved_at = clock()
        self._last: tuple[int, float] | None = None
        self._step_seconds: deque[float] = deque(maxlen=101)
        self._longest = 0.0

    def see(self, step: int, progress_at: float) -> None:
        """The run's last step and when it was stored, by the database's clock."""
        if self._last is None:
            self._last = step, progress_at
        elif self._last != (step, progress_at):
            self._take(step, progress_at)

    def _take(self, step: int, progress_at: float) -> None:
        now = self._clock()
        before, _ = self._last or (step, 0.0)
        seconds, self._moved_at, self._last = now - self._moved_at, now, (step, progress_at)
        self._longest = max(self._longest, seconds)
        if step > before:
            self._step_seconds.append(seconds / (step - before))

    def lose_sight(self) -> None:
        """Count the silence anew: nothing can be known now."""
        self._moved_at = self._clock()

    @property
    def silent_seconds(self) -> float:
        """Time since the last progress."""
        return self._clock() - self._moved_at

    @property
    def limit_seconds(self) -> float:
        """Longer silence than this is a hang."""
        hang_limits = self._hang_limits
        if not self._step_seconds:
            return max(hang_limits.start_seconds, hang_limits.gaps * self._longest)
        usual = hang_limits.steps * median(self._step_seconds)
        return max(hang_limits.least_seconds, usual, hang_limits.gaps * self._longest)

    @property
    def is_hung(self) -> bool:
        """Whether it has been silent for too long."""
        return self.silent_seconds > self.limit_seconds
