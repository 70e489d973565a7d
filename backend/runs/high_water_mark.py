"""Detect a database that is older than it was before.

A lost SQLite log, a restored older copy or a server that lost acknowledged writes all look like a valid
database. A file in the state directory therefore stores the number of the newest event: the high-water mark.
Checkpoints of steps that the database does not know are evidence, too.
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

CHECKPOINT_PATTERN = re.compile(r"s(\d{6,})-a\d+")
MANIFEST = "manifest.json"
MAX_NAMED = 5
"""Maximum number of checkpoints that a message names."""


class Mark(NamedTuple):
    """The newest state of the database that this installation has seen."""

    database: str
    """Identity of the database, because another DATABASE_URL has another history."""
    event: int
    at: float
    """Unix time at which the mark was written, by the clock of this machine."""
    older_since: float = 0.0
    """Unix time at which the database was last found to be older than its mark; 0 if never."""


class DatabaseLoss(NamedTuple):
    """A database that lacks data which the state directory proves to have existed."""

    events: int
    """Minimum number of missing events; 0 if only files prove the loss."""
    seen_at: float
    """Unix time at which the missing events were last seen."""
    ahead: list[str]
    """Checkpoints, as `<run>/<name>`, of steps that the database does not know."""

    @property
    def sentence(self) -> str:
        """A sentence that states the missing data and how to recover them."""
        sentence = "the database is older than this state directory"
        if self.events:
            last_seen = iso_time(self.seen_at)
            sentence += f": {self.events:,} or more of its newest events are missing, last seen {last_seen}"
        if self.ahead:
            names = ", ".join(self.ahead[:MAX_NAMED]) + (", ..." if len(self.ahead) > MAX_NAMED else "")
            sentence += f"; {len(self.ahead)} checkpoints of steps that it does not know are kept ({names}): "
            sentence += "a run that is resumed or retried uses its own again"
        return (
            f"{sentence}. If its -wal file or a newer copy exists, stop and put it back; otherwise continue"
        )


def mark_file(settings: Settings) -> Path:
    """Return the path of the file that stores the mark."""
    return settings.state / "highwater.json"


def read_mark(settings: Settings) -> Mark | None:
    """Return the mark of this database; None if there is none, or if it belongs to another database."""
    try:
        mark = Mark(**json.loads(mark_file(settings).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    return mark if mark.database == _identity(settings) else None


def raise_mark(settings: Settings, session: Session) -> None:
    """Raise the mark to the newest event. Events that the session sees are committed and on disk."""
    mark, newest = read_mark(settings), session.scalar(select(func.max(Event.id))) or 0
    if mark is None or newest > mark.event:
        _write(settings, Mark(_identity(settings), newest, time.time(), mark.older_since if mark else 0.0))


def find_older(settings: Settings, session: Session) -> DatabaseLoss | None:
    """Return the data that the database lost according to the state directory; None if it lost nothing."""
    mark = read_mark(settings)
    missing_events = max(mark.event - _last_event_number(session), 0) if mark else 0
    unknown_checkpoints = list(_unknown_checkpoints(settings, session))
    return (
        DatabaseLoss(missing_events, mark.at if mark else 0.0, unknown_checkpoints)
        if missing_events or unknown_checkpoints
        else None
    )


def report_if_older(settings: Settings, session: Session) -> DatabaseLoss | None:
    """If the database is older than its mark, log an error, add an event and start a new mark."""
    loss = find_older(settings, session)
    if loss is not None:
        logger.error("%s", loss.sentence)
        add_event(session, "database", loss.sentence, level="error", data={"ahead": loss.ahead})
        newest = session.scalar(select(func.max(Event.id))) or 0
        _write(settings, Mark(_identity(settings), newest, time.time(), time.time()))
    return loss


def forget_mark(settings: Settings) -> None:
    """Delete the mark, because another database replaces this one on purpose."""
    mark_file(settings).unlink(missing_ok=True)


def _identity(settings: Settings) -> str:
    return hashlib.sha256(settings.effective_database_url.encode()).hexdigest()[:16]


def _last_event_number(session: Session) -> int:
    """Return the highest number that an event ever had in this database, including deleted events."""
    query = "SELECT last_value FROM event_id_seq"
    if not is_postgres(session):
        query = "SELECT max(seq) FROM sqlite_sequence WHERE name = 'event'"
    return session.scalar(text(query)) or 0


def _unknown_checkpoints(settings: Settings, session: Session) -> Iterator[str]:
    """Yield the checkpoints on disk that have no row and are of a later step than their run's last step."""
    steps = select(Run.id, Run.last_step).where(Run.deleting_at.is_(None))
    runs = {row.id: row.last_step for row in session.execute(steps)}
    rows = session.execute(select(Checkpoint.run_id, Checkpoint.path))
    checkpoints = {(row.run_id, row.path) for row in rows}
    for manifest in sorted((settings.state / "runs").glob(f"*/[!.]*/{MANIFEST}")):
        run_id, name = manifest.parts[-3:-1]
        match = CHECKPOINT_PATTERN.fullmatch(name)
        is_ahead = run_id in runs and match is not None and int(match[1]) > runs[run_id]
        if is_ahead and (run_id, name) not in checkpoints:
            yield f"{run_id}/{name}"


def _write(settings: Settings, mark: Mark) -> None:
    file = mark_file(settings)
    draft = file.with_suffix(".draft")
    with suppress(OSError):  # the states page checks the disk separately
        draft.write_text(json.dumps(mark._asdict()))
        publish(draft, file)
