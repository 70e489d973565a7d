"""Find the changes in the database after a position, as messages of a stream."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backend.http.responses import Json
from backend.runs.events import event_json
from backend.runs.list import run_columns
from backend.runs.store import run_json
from backend.storage.engine import db_now
from backend.storage.models import Event, Run

TIME_OVERLAP_SECONDS = 2.0
"""Seconds that are read again, because changes of runs become visible out of order."""

CLOCK_SLACK_SECONDS = 1.0
"""Maximum clock adjustment and rounding that the overlap covers, in seconds."""

GAP_SECONDS = 3.0
"""Seconds after which a transaction with missing events is assumed to be rolled back."""

RECENT_EVENTS = 500
"""Number of newest events between which others may still appear."""


class Position(NamedTuple):
    """A position of a stream in the history."""

    event: int
    changed: float
    """`run.changed_at` of the newest change."""

    def write(self) -> str:
        """Return the position as the `id` of a message."""
        return f"{self.event}.{int(self.changed * 1e6)}"


def parse_position(text: str) -> Position | None:
    """Return the position that `Position.write` wrote; None for any other text."""
    event, dot, changed_text = text.partition(".")
    if not (text.isascii() and dot and event.isdecimal() and changed_text.isdecimal() and len(text) <= 34):
        return None
    return Position(min(int(event), 2**62), int(changed_text) / 1e6)


class Message(NamedTuple):
    """A server-sent event. Its position means that everything up to it has been sent."""

    kind: str
    data: Any
    position: Position | None = None

    def encode(self) -> bytes:
        """Return the message in the wire format of server-sent events."""
        head = f"id: {self.position.write()}\n" if self.position else ""
        return f"{head}event: {self.kind}\ndata: ".encode() + Json(self.data).body + b"\n\n"


def newest_position(session: Session) -> Position:
    """Return the position of the newest visible event and change."""
    newest, changed_at = session.execute(select(_newest_event(), _newest_change())).one()
    return Position(newest or 0, changed_at or 0.0)


def settled_position(session: Session) -> Position:
    """Return the start position of a new stream, before which no event can still appear."""
    position = newest_position(session)
    last = 0
    query = (
        select(Event.id, Event.at, db_now())
        .where(Event.id > position.event - RECENT_EVENTS)
        .order_by(Event.id)
    )
    for event, created_at, now in session.execute(query):
        if last and not _is_settled(last, event, created_at, now):
            break
        last = event
    return position._replace(event=last)


def _is_settled(last: int, event: int, created_at: float, now: float) -> bool:
    """Return whether no event can still appear between these two."""
    return event == last + 1 or abs(now - created_at) >= GAP_SECONDS


def _newest_event() -> Any:
    return select(func.max(Event.id)).scalar_subquery()


def _newest_change() -> Any:
    return select(func.max(Run.changed_at)).scalar_subquery()


def events_after(session: Session, last: int, limit: int) -> list[Event]:
    """Return the events after `last`, up to the first position at which an event may still appear.

    Postgres assigns ids before commits, so a gap may be filled by an unfinished transaction.
    """
    query = select(Event, db_now()).where(Event.id > last).order_by(Event.id).limit(limit)
    events: list[Event] = []
    for event, now in session.execute(query):
        if not _is_settled(last, event.id, event.at, now):
            break
        last = event.id
        events.append(event)
    return events


def changes_after(session: Session, changed_since: float, *, limit: int | None = None) -> dict[str, float]:
    """Return the change times by run id of up to `limit` runs, from shortly before `changed_since` on."""
    query = (
        select(Run.id, Run.changed_at)
        .where(Run.changed_at > changed_since - TIME_OVERLAP_SECONDS)
        .limit(limit)
    )
    return {row.id: row.changed_at for row in session.execute(query)}


def load_runs(session: Session, runs: Sequence[str]) -> Sequence[Any]:
    """Return the runs with these ids in the order of their changes."""
    query = run_columns().where(Run.id.in_(runs)).order_by(Run.changed_at)
    return session.execute(query).all() if runs else ()


def make_messages(
    events: Sequence[Event], runs: Sequence[Any], position: Position, steps: dict[str, int]
) -> Iterator[Message]:
    """Yield messages for events and runs after a position, each with the position from which to resume.

    `steps` contains the last reported step of each run, and is updated.
    """
    for event in events:
        position = position._replace(event=event.id)
        yield Message("event", event_json(event), position)
    for row in runs:
        position = position._replace(changed=max(position.changed, row.changed_at))
        yield Message("run", run_json(row), position)
        if steps.get(row.id) != row.last_step:
            steps[row.id] = row.last_step
            yield Message("points", {"run": row.id, "step": row.last_step}, position)
