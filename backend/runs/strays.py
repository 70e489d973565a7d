"""Remove files that belong to no run, and report checkpoints whose files are missing.

A trainer that is killed may leave behind an incomplete checkpoint, or one without a row. The next attempt
cleans up, but not every run has one. Files that have belonged to no run for a day, and did not change in the
meantime, are removed. Links are not followed, and directories that cannot be runs of this database stay
unchanged: those whose names no run could have, and those older than its oldest run. No row is removed: a
missing checkpoint is reported as an event of its run.
"""

import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.base.settings import Settings
from backend.runs.events import add_event
from backend.runs.high_water_mark import read_mark
from backend.storage.artifacts.copies import Copies
from backend.storage.artifacts.store import MANIFEST, ArtifactFault
from backend.storage.engine import CROCKFORD_ALPHABET, Sessions, open_read_session
from backend.storage.models import Checkpoint, Event, Run

logger = logging.getLogger(__name__)

MIN_AGE_SECONDS = 24 * 3600.0
"""Seconds after which a file that belongs to no run is removed, by the clock of this machine."""

ACTIVE_STATUSES = ("queued", "running")
"""Statuses of runs whose trainer writes their files, or whose next attempt cleans them up."""

RUN_ID_PATTERN = re.compile(f"[{CROCKFORD_ALPHABET}]{{26}}")


class Record(NamedTuple):
    """The runs and checkpoints in the database."""

    statuses: dict[str, str]
    checkpoints: dict[str, dict[str, int]]
    """Steps of the checkpoints of each run, by the name of the checkpoint's directory."""

    def owns(self, run_id: str) -> bool:
        """Return whether the run is in the database, or is older than its oldest run.

        An older run may belong to another database that used this directory before.
        """
        return run_id in self.statuses or run_id < min(self.statuses, default="~")


class Strays:
    """Find files in the directory of runs that belong to no run.

    A file stores when they were found, so that a restart does not reset the delay.
    """

    def __init__(
        self, settings: Settings, sessions: Sessions, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._sessions, self._clock = sessions, clock
        self._settings = settings
        self._root = settings.state / "runs"
        self._notes = settings.run_dir / "strays.json"
        self._copies, self._is_away = Copies(settings), False

    def sweep(self) -> Iterator[None]:
        """Check all files once, and yield after each run; raise OSError if a file cannot be read."""
        if not self._root.is_dir():
            return
        # Files are listed before rows are read, because rows are created before files.
        names = sorted(path.name for path in self._root.iterdir())
        with open_read_session(self._sessions) as session:
            record = _load_record(session)
        old_notes, new_notes = self._read_notes(), dict[str, float]()
        for name in names:
            for path in self._find_ownerless(name, record):
                key = path.relative_to(self._root).as_posix()
                now = self._clock()
                noted_at = min(old_notes.get(key, now), now)
                if key not in old_notes:
                    logger.warning("%s belongs to no run: it will be removed in a day", path)
                if now - max(noted_at, _newest_change(path)) < MIN_AGE_SECONDS or not self._remove(path):
                    new_notes[key] = noted_at
            yield
        self._write_notes(new_notes)
        self._copies, self._is_away = Copies(self._settings), False
        if names:  # otherwise their disk is not mounted
            for run_id in record.checkpoints:
                self._report_missing_checkpoints(run_id, record)
                yield

    def _find_ownerless(self, name: str, record: Record) -> list[Path]:
        directory = self._root / name
        if not RUN_ID_PATTERN.fullmatch(name) or directory.is_symlink() or not directory.is_dir():
            return []
        if not record.owns(name):
            mark = read_mark(self._settings)  # the lost newest rows of the database may be restored
            return [] if mark and mark.older_since else [directory]
        if record.statuses.get(name, ACTIVE_STATUSES[0]) in ACTIVE_STATUSES:
            return []
        checkpoint_names = record.checkpoints.get(name, {})
        return sorted(
            path
            for path in directory.iterdir()
            if path.name not in checkpoint_names and not path.is_symlink()
        )

    def _remove(self, path: Path) -> bool:
        """Remove a path if it still belongs to no run; return whether it was removed."""
        name = path.relative_to(self._root).parts[0]
        with open_read_session(self._sessions) as session:
            if path not in self._find_ownerless(name, _load_record(session, name)):
                return False
        try:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        except OSError as error:
            logger.warning("%s belongs to no run and cannot be removed: %s", path, error)
            return False
        logger.warning("removed %s, which had belonged to no run for a day", path)
        return True

    def _report_missing_checkpoints(self, run_id: str, record: Record) -> None:
        """Add one event for each missing checkpoint, unless it was already reported."""
        if record.statuses.get(run_id, ACTIVE_STATUSES[0]) in ACTIVE_STATUSES:
            return
        for name, step in record.checkpoints[run_id].items():
            if (self._root / run_id / name / MANIFEST).is_file():
                continue
            if self._is_copied(run_id, name):
                continue
            message = f"checkpoint {name} is missing from the disk: no run can continue or start from it"
            with self._sessions.begin() as session:
                row = select(Checkpoint.id).where(Checkpoint.run_id == run_id, Checkpoint.path == name)
                event_query = select(Event.id).where(Event.run_id == run_id, Event.message == message)
                if session.scalar(row.limit(1)) and not session.scalar(event_query.limit(1)):
                    add_event(session, "checkpoint", message, run_id=run_id, level="error", step=step)

    def _is_copied(self, run_id: str, name: str) -> bool:
        """Return whether the artifact store has the checkpoint, or is unavailable."""
        if self._is_away:
            return True
        try:
            return self._copies.has(run_id, name)
        except ArtifactFault as error:
            logger.warning("%s", error.detail)
            self._is_away = True
            return True

    def _read_notes(self) -> dict[str, float]:
        try:
            return dict(json.loads(self._notes.read_text()))
        except (OSError, ValueError, TypeError):
            return {}

    def _write_notes(self, notes: dict[str, float]) -> None:
        if notes or self._notes.exists():
            self._notes.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = self._notes.with_suffix(".draft")
            draft.write_text(json.dumps(notes))
            draft.replace(self._notes)


def _load_record(session: Session, run_id: str = "") -> Record:
    """Load the record of all runs, or of the named run and the oldest run."""
    runs = select(Run.id, Run.status)
    rows = select(Checkpoint.run_id, Checkpoint.path, Checkpoint.step)
    if run_id:
        oldest = select(Run.id).order_by(Run.id).limit(1).scalar_subquery()
        runs = runs.where(Run.id.in_([run_id]) | (Run.id == oldest))
        rows = rows.where(Checkpoint.run_id == run_id)
    checkpoints: dict[str, dict[str, int]] = {}
    for owner, path, step in session.execute(rows):
        checkpoints.setdefault(owner, {})[path] = step
    return Record({row.id: row.status for row in session.execute(runs)}, checkpoints)


def _newest_change(path: Path) -> float:
    """Return the time of the newest change within a path, without following links."""
    times = [path.lstat().st_mtime]
    for directory, _, files in os.walk(path):
        times += [os.lstat(Path(directory, name)).st_mtime for name in ("", *files)]
    return max(times)
