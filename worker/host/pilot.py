"""Pilot workers, which a cluster starts while there is work and which end by themselves.

A pilot ends after a number of runs, after a number of idle seconds, or at a given time. Running
trainers then save a checkpoint and release their runs, and another pilot continues them.
"""

import time
from dataclasses import dataclass

from backend.base.settings import Settings


@dataclass(frozen=True, slots=True)
class PilotLimits:
    """Limits at which a worker ends by itself. 0 means no limit."""

    runs: int = 0
    """Maximum number of runs that the worker claims."""
    idle_seconds: float = 0.0
    """Maximum number of seconds during which no slot has a run."""
    end_time: float = 0.0
    """Deadline in UTC epoch seconds."""

    @classmethod
    def from_settings(cls, settings: Settings) -> "PilotLimits":
        """Return the limits in the settings."""
        return cls(settings.worker_runs, settings.worker_idle_seconds, settings.worker_until)


class Pilot:
    """Counts runs and idle time of one worker, and decides when it ends.

    Durations use the monotonic clock; only the deadline uses the wall clock.
    """

    def __init__(self, limits: PilotLimits) -> None:
        self._limits = limits
        self._claim_count = 0
        self._busy_at = time.monotonic()

    def may_claim(self) -> bool:
        """Return whether another run may be claimed."""
        is_spent = self._limits.runs and self._claim_count >= self._limits.runs
        return not is_spent and not self._is_late()

    def note_claim(self) -> None:
        """Record a claimed run."""
        self._claim_count += 1

    def reason_to_end(self, *, is_busy: bool) -> str:
        """Return the reason to end now, or "" if there is none."""
        if is_busy:
            self._busy_at = time.monotonic()
        if self._is_late():
            return "the time that WORKER_UNTIL allows is over"
        if is_busy:
            return ""
        if self._limits.runs and self._claim_count >= self._limits.runs:
            return f"all {self._claim_count} runs that WORKER_RUNS allows are done"
        idle = time.monotonic() - self._busy_at
        if self._limits.idle_seconds and idle >= self._limits.idle_seconds:
            return f"no run came in {idle:.0f} s"
        return ""

    def _is_late(self) -> bool:
        return bool(self._limits.end_time) and time.time() >= self._limits.end_time
