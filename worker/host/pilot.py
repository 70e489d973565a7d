"""Pilot workers: started by a cluster for as long as there is work, and gone by themselves.

A pilot ends after so many runs, after so many idle seconds, or at a time of its machine's clock; running
trainers then save a checkpoint and give their runs back, and another pilot goes on with them.
"""

import time
from dataclasses import dataclass

from backend.base.settings import Settings


@dataclass(frozen=True, slots=True)
class PilotLimits:
    """Limits at which a worker ends by itself; zeros: none."""

    runs: int = 0
    """Runs to claim in all."""
    idle_seconds: float = 0.0
    """How long no slot may have had a run."""
    until: float = 0.0
    """UTC epoch seconds."""

    @classmethod
    def of(cls, settings: Settings) -> "PilotLimits":
        """The limits that the settings name."""
        return cls(settings.worker_runs, settings.worker_idle_seconds, settings.worker_until)


class Pilot:
    """Keeps count for one worker, and says when it is over.

    Ages are taken from the monotonic clock; only the deadline is a time of the wall clock.
    """

    def __init__(self, limits: PilotLimits) -> None:
        self._limits = limits
        self._claimed = 0
        self._busy_at = time.monotonic()

    def may_claim(self) -> bool:
        """Whether another run may be claimed."""
        is_spent = self._limits.runs and self._claimed >= self._limits.runs
        return not is_spent and not self._is_late()

    def note_claim(self) -> None:
        """A run was claimed."""
        self._claimed += 1

    def reason_to_end(self, *, is_busy: bool) -> str:
        """The reason to end now, in words; empty: none."""
        if is_busy:
            self._busy_at = time.monotonic()
        if self._is_late():
            return "the time that WORKER_UNTIL allows is over"
        if is_busy:
            return ""
        if self._limits.runs and self._claimed >= self._limits.runs:
            return f"all {self._claimed} runs that WORKER_RUNS allows are done"
        idle = time.monotonic() - self._busy_at
        if self._limits.idle_seconds and idle >= self._limits.idle_seconds:
            return f"no run came in {idle:.0f} s"
        return ""

    def _is_late(self) -> bool:
        return bool(self._limits.until) and time.time() >= self._limits.until
