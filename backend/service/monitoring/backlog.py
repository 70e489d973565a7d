"""The backlog of this machine's trainers: small files about data that could not be written to the database.

A trainer whose database is unavailable keeps finished steps in memory, up to a limit, and writes their number
to the state directory, where the service reads it for its pages. A note that is no longer renewed is ignored.
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
"""Seconds after which a note is ignored; trainers renew their notes every few seconds."""


@dataclass(frozen=True, slots=True)
class Note:
    """A note about a run that waits for the database."""

    run: str
    since: float
    """Time since which it waits, in Unix time."""
    steps: int
    """Number of finished steps that are not stored yet."""
    is_held: bool
    """Whether training is suspended meanwhile."""
    reason: str

    def as_json(self) -> dict[str, Any]:
        """Return the note as the HTTP API shows it."""
        return asdict(self) | {"since": iso_time(self.since)}


def note_path(settings: Settings, run_id: str) -> Path:
    """Return the path of the note of a run's trainer."""
    return settings.run_dir / "waiting" / f"{run_id}.json"


def write_note(path: Path, note: Note) -> None:
    """Write or renew a note; disk errors are ignored."""
    draft = path.with_suffix(".draft")
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.write_text(json.dumps(asdict(note)))
        draft.replace(path)


def remove_note(path: Path) -> None:
    """Remove the note, because nothing waits for the database any more."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def read_notes(settings: Settings) -> list[Note]:
    """Return the notes of all runs of this machine that wait for the database."""
    paths = sorted((settings.run_dir / "waiting").glob("*.json"))
    return [note for note in map(_read_note, paths) if note is not None]


def _read_note(path: Path) -> Note | None:
    try:
        if time.time() - path.stat().st_mtime > ALIVE_SECONDS:
            return None
        return Note(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):  # removed in the meantime, or incomplete because of a full disk
        return None
