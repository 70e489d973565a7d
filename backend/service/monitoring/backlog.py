"""Backlog of this machine's trainers: small files that say what they could not yet write to SQL.

A trainer whose database is away keeps its finished steps in memory, up to a limit, and notes how many they
are in the state directory; the service reads the notes for its pages. A note that nobody renews is dead.
"""

import contextlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backend.base.settings import Settings
from backend.http.paging import iso_time

ALIVE_SECONDS = 60.0
"""Trainers try again, and renew their note, every few seconds."""


@dataclass(frozen=True, slots=True)
class Note:
    """One run that waits for the database."""

    run: str
    since: float
    """UTC epoch seconds."""
    steps: int
    """Finished steps that are not stored yet."""
    is_held: bool
    """Whether training itself waits."""
    reason: str

    def as_json(self) -> dict[str, Any]:
        """Return the note as the HTTP interface shows it."""
        return asdict(self) | {"since": iso_time(self.since)}


def note_path(settings: Settings, run_id: str) -> Path:
    """Path of the note that a run's trainer leaves."""
    return settings.run_dir / "waiting" / f"{run_id}.json"


def write_note(path: Path, note: Note) -> None:
    """Write or renew a note, if the disk lets us."""
    draft = path.with_suffix(".draft")
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.write_text(json.dumps(asdict(note)))
        draft.replace(path)


def remove_note(path: Path) -> None:
    """Remove the note: nothing waits any more."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def read_notes(settings: Settings) -> list[Note]:
    """Return every run of this machine that waits for the database."""
    paths = sorted((settings.run_dir / "waiting").glob("*.json"))
    return [note for note in map(_read_note, paths) if note is not None]


def _read_note(path: Path) -> Note | None:
    try:
        if time.time() - path.stat().st_mtime > ALIVE_SECONDS:
            return None
        return Note(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):  # removed meanwhile, or half of it on a full disk
        return None
