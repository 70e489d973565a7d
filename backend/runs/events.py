"""The history of a run and of the installation: lines that are only ever added."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from backend.models import Event
from backend.text import clean_text


def add_event(
    session: Session,
    kind: str,
    message: str,
    *,
    run_id: str | None = None,
    attempt: int | None = None,
    level: str = "info",
    step: int | None = None,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Write one line of history."""
    values = {"run_id": run_id, "attempt": attempt, "kind": kind, "level": level, "step": step}
    session.execute(insert(Event).values(**values, message=clean_text(message), data=dict(data or {})))


def events_of(session: Session, run_id: str, *, after: int = 0, limit: int = 200) -> Sequence[Event]:
    """Events of a run in order, behind the event `after`."""
    query = select(Event).where(Event.run_id == run_id, Event.id > after).order_by(Event.id).limit(limit)
    return session.scalars(query).all()
