"""Data classes for the configurations of a search and their runs."""

from dataclasses import dataclass
from typing import Any, Literal

from backend.experiments.searches.objective import Reports, final_value

State = Literal[
    "refused", "deleted", "queued", "running", "paused", "pruned", "finished", "stopped", "failed", "no value"
]
LIVE_STATUSES = ("queued", "running", "paused")
DONE_STATUSES = ("finished", "stopped")
"""States of runs whose value counts: a stop rule is part of a method, but a failure is not."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """The columns of a run that a search reads."""

    id: str
    name: str
    variant: str
    seed: int
    status: str
    steps: int
    last_step: int = 0
    reason: str = ""
    requested_action: str = ""
    verdict: str | None = None
    judged_step: int = 0
    """Last step that the verdict takes into account."""
    reports: Reports | None = None


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A configuration and its first run."""

    number: int
    point: tuple[Any, ...]
    variant: str
    run: RunRow | None = None
    refused: str = ""
    judged_step: int = 0
    pruned: str = ""
    chosen: bool = False

    @property
    def reports(self) -> Reports:
        """Values of the run so far, by step."""
        return (self.run.reports if self.run else None) or {}

    @property
    def state(self) -> State:
        """State of the run; a pruned run that was resumed is active again."""
        if self.refused:
            return "refused"
        if self.run is None:
            return "deleted"
        if self.run.status in LIVE_STATUSES:
            return self.run.status  # type: ignore[return-value]
        if self.pruned and self.run.status == "stopped":
            return "pruned"
        if self.run.status in DONE_STATUSES and final_value(self.reports) is None:
            return "no value"
        return self.run.status  # type: ignore[return-value]

    @property
    def value(self) -> float | None:
        """Value that is eligible to win; None if there is none, or the run has not ended by itself."""
        return final_value(self.reports) if self.state in DONE_STATUSES else None
