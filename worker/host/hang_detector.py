"""Detect hung trainers by comparing the time since the last step with the durations of earlier steps.

A heartbeat does not prove progress, because the supervisor renews the lease even if no step ends.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class HangLimits:
    """Limits of the time that a trainer may be silent."""

    min_silence_seconds: float = 600.0
    """Minimum silence in seconds that counts as a hang."""

    median_step_multiple: float = 20.0
    """Minimum silence that counts as a hang, as a multiple of the median step duration."""

    longest_silence_multiple: float = 3.0
    """Minimum silence that counts as a hang, as a multiple of the longest silence so far, which may
    have been an evaluation.
    """

    start_seconds: float = 3600.0
    """Maximum silence in seconds before the first progress, for loading, downloads and evaluation."""


class HangDetector:
    """Observes the steps of one trainer."""

    def __init__(self, hang_limits: HangLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._hang_limits = hang_limits
        self._clock = clock
        self._last_progress_at = clock()
        self._last: tuple[int, float] | None = None
        self._step_seconds: deque[float] = deque(maxlen=101)
        self._longest_seconds = 0.0

    def observe_progress(self, step: int, progress_at: float) -> None:
        """Record the run's last step and the time at which it was stored, by the database's clock."""
        if self._last is None:
            self._last = step, progress_at
        elif self._last != (step, progress_at):
            self._record_progress(step, progress_at)

    def _record_progress(self, step: int, progress_at: float) -> None:
        now = self._clock()
        last_step, _ = self._last or (step, 0.0)
        seconds, self._last_progress_at, self._last = now - self._last_progress_at, now, (step, progress_at)
        self._longest_seconds = max(self._longest_seconds, seconds)
        if step > last_step:
            self._step_seconds.append(seconds / (step - last_step))

    def reset_silence(self) -> None:
        """Reset the silence, because progress cannot be observed now."""
        self._last_progress_at = self._clock()

    @property
    def silent_seconds(self) -> float:
        """The seconds since the last progress."""
        return self._clock() - self._last_progress_at

    @property
    def limit_seconds(self) -> float:
        """The seconds of silence after which the trainer counts as hung."""
        hang_limits = self._hang_limits
        if not self._step_seconds:
            return max(
                hang_limits.start_seconds, hang_limits.longest_silence_multiple * self._longest_seconds
            )
        usual = hang_limits.median_step_multiple * median(self._step_seconds)
        return max(
            hang_limits.min_silence_seconds,
            usual,
            hang_limits.longest_silence_multiple * self._longest_seconds,
        )

    @property
    def is_hung(self) -> bool:
        """True if the trainer has been silent for too long."""
        return self.silent_seconds > self.limit_seconds
