"""The note with which a trainer shows, during a database outage, that its steps wait to be stored."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from backend.service.monitoring.backlog import Note, remove_note, write_note
from backend.storage.faults import Fault

WORTH_TELLING_SECONDS = 2.0
"""Seconds of waiting after which an outage is reported."""


class Backlog(NamedTuple):
    """Steps that are waiting at this moment."""

    steps: int
    is_held: bool
    """Whether training itself is waiting."""


class Outage:
    """One run's wait for its database: a note while it lasts, an event when it is over."""

    def __init__(self, path: Path | None, run_id: str, backlog: Callable[[], Backlog]) -> None:
        """Create the note; `path` is where the service reads it, None: nowhere."""
        self._path, self._run_id, self._backlog = path, run_id, backlog
        self._since = 0.0
        self._started = 0.0
        self._reason = ""

    def wait(self, fault: Fault) -> None:
        """Record a failed try."""
        if not self._since:
            self._since, self._started = time.time(), time.monotonic()
        self._reason = fault.sentence
        steps, is_held = self._backlog()
        if self._path is not None:
            write_note(self._path, Note(self._run_id, self._since, steps, is_held, fault.sentence))

    def end(self) -> str:
        """End the outage; return the line for the run's history, if any."""
        if not self._since:
            return ""
        seconds = time.monotonic() - self._started
        self._since = 0.0
        if self._path is not None:
            remove_note(self._path)
        return f"waited {seconds:.0f} s: {self._reason}" if seconds >= WORTH_TELLING_SECONDS else ""
