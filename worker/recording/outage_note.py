"""The note by which a trainer reports, during a database outage, that its steps are queued."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from backend.service.monitoring.backlog import Note, remove_note, write_note
from backend.storage.faults import Fault

MIN_REPORTED_SECONDS = 2.0
"""Seconds of waiting after which an outage is reported."""


class Backlog(NamedTuple):
    """Number of steps that are queued at this moment."""

    steps: int
    is_held: bool
    """True if training itself is blocked."""


class Outage:
    """Reports one run's wait for its database, with a note while it lasts and a sentence afterwards."""

    def __init__(self, path: Path | None, run_id: str, backlog: Callable[[], Backlog]) -> None:
        """Create the report. The service reads the note at `path`, if one is given."""
        self._path, self._run_id, self._backlog = path, run_id, backlog
        self._since = 0.0
        self._started_at = 0.0
        self._reason = ""

    def wait(self, fault: Fault) -> None:
        """Record a failed try."""
        if not self._since:
            self._since, self._started_at = time.time(), time.monotonic()
        self._reason = fault.sentence
        steps, is_held = self._backlog()
        if self._path is not None:
            write_note(self._path, Note(self._run_id, self._since, steps, is_held, fault.sentence))

    def end(self) -> str:
        """End the outage, and return a sentence for the run's history if it was long, else ""."""
        if not self._since:
            return ""
        seconds = time.monotonic() - self._started_at
        self._since = 0.0
        if self._path is not None:
            remove_note(self._path)
        return f"waited {seconds:.0f} s: {self._reason}" if seconds >= MIN_REPORTED_SECONDS else ""
