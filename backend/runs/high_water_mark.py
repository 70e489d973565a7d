"""High-water mark: how far the database had come, kept in a file, to notice one that comes back older.

A log of SQLite that was lost, an older copy or a server that forgot what it had acknowledged look like a
database in order. The number of the newest event in the state directory says otherwise, and so do checkpoints
of steps that the database does not know.
"""

import hashlib
import json
import logging
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from backend.base.durable_files import publish
from backend.base.settings import Settings
from backend.http.paging import iso_time
from backend.runs.events import add_event
from backend.storage.engine import is_postgres
from backend.storage.models import Checkpoint, Event, Run

logger = logging.getLogger(__name__)

CHECKPOINT = re.compile(r"s(\d{6,})-a\d+")
MANIFEST = "manifest.json"
NAMED = 5
"""Maximum number of checkpoints on the disk that are named."""


class Mark(NamedTuple):
    """The newest state that this installation has seen."""

    database: str
    """The database's identity: another DATABASE_URL has another history."""
    event: int
    at: float
    """Seconds since 1970, by this machine's clock."""
    older_since: float = 0.0
    """The time at which the database was last found to be older than its mark; 0: never."""


class DatabaseLoss(NamedTuple):
    """A database that lacks what this directory proves."""

    events: int
    """Smallest possible number of missing history lines; 0 if only files prove the loss."""
    at: float
    """The time at which the database was seen with them."""
    ahead: list[str]
    """Checkpoints, as `<run>/<name>`, of steps that it does not know."""

    @property
    def sentence(self) -> str:
        """One sentence: what is missing and what can be recovered."""
        words = "the database is older than this state directory"
        if self.events:
            words += (
                f": {self.events:,} or more of its newest events are missing, last seen {iso_time(self.at)}"
            )
        if self.ahead:
            named = ", ".join(self.ahead[:NAMED]) + (", ..." if len(self.ahead) > NAMED else "")
            words += f"; {len(self.ahead)} checkpoints of steps that it does not know are kept ({named}): "
            words += "a run that is resumed or retried uses its own again"
        return f"{words}. If its -wal file or a newer copy exists, stop and put it back; otherwise continue"


def mark_file(settings: Settings) -> Path:
    """Return the path of the mark."""
    return settings.state / "highwater.json"


def read_mark(settings: Settings) -> Mark | None:
    """Return the mark of this database; None if there is none, or one of another database."""
    try:
        mark = Mark(**json.loads(mark_file(settings).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    return mark if mark.database == _identity(settings) else None


def raise_mark(settings: Settings, session: Session) -> None:
    """Bring the mark to the newest event. What the session sees was committed, and so is on the disk."""
    mark, newest = read_mark(settings), session.scalar(select(func.max(Event.id))) or 0
    if mark is None or newest > mark.event:
        _write(settings, Mark(_identity(settings), newest, time.time(), mark.older_since if mark else 0.0))


def find_older(settings: Settings, session: Session) -> DatabaseLoss | None:
    """Return what the state directory proves and the database lacks; None if it lacks nothing."""
    mark = read_mark(settings)
    missing = max(mark.event - _last_event_number(session), 0) if mark else 0
    ahead = list(_unknown_checkpoints(settings, session))
    return DatabaseLoss(missing, mark.at if mark else 0.0, ahead) if missing or ahead else None


def report_if_older(settings: Settings, session: Session) -> DatabaseLoss | None:
    """If the database is older than its mark, report that in log and history at the start, and begin a
    new mark.
    """
    older = find_older(settings, session)
    if older is not None:
        logger.error("%s", older.sentence)
        add_event(session, "database", older.sentence, level="error", data={"ahead": older.ahead})
        newest = session.scalar(select(func.max(Event.id))) or 0
        _write(settings, Mark(_identity(settings), newest, time.time(), time.time()))
    return older


def forget_mark(settings: Settings) -> None:
    """Forget the mark, because another database replaces this one on purpose."""
    mark_file(settings).unlink(missing_ok=True)


def _identity(settings: Settings) -> str:
    return hashlib.sha256(settings.effective_database_url.encode()).hexdigest()[:16]


def _last_event_number(session: Session) -> int:
    """Return the highest number that an event ever had here, deleted ones included."""
    query = "SELECT last_value FROM event_id_seq"
    if not is_postgres(session):
        query = "SELECT max(seq) FROM sqlite_sequence WHERE name = 'event'"
    return session.scalar(text(query)) or 0


def _unknown_checkpoints(settings: Settings, session: Session) -> Iterator[str]:
    """Yield the checkpoints on the disk that have no row and are beyond the last step of their run."""
    steps = select(Run.id, Run.last_step).where(Run.deleting_at.is_(None))
    runs = {row.id: row.last_step for row in session.execute(steps)}
    rows = session.execute(select(Checkpoint.run_id, Checkpoint.path))
    checkpoints = {(row.run_id, row.path) for row in rows}
    for manifest in sorted((settings.state / "runs").glob(f"*/[!.]*/{MANIFEST}")):
        run_id, name = manifest.parts[-3:-1]
        match = CHECKPOINT.fullmatch(name)
        is_ahead = run_id in runs and match is not None and int(match[1]) > runs[run_id]
        if is_ahead and (run_id, name) not in checkpoints:
            yield f"{run_id}/{name}"


def _write(settings: Settings, mark: Mark) -> None:
    file = mark_file(settings)
    draft = file.with_suffix(".draft")
    with suppress(OSError):  # the disk has a part of its own on the page of states
        draft.write_text(json.dumps(mark._asdict()))
        publish(draft, file)
