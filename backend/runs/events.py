"""The append-only history of runs and of the installation."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from backend.base.logs import request_id
from backend.base.redaction import redact, redact_document
from backend.base.text import clean_text
from backend.http.paging import iso_time
from backend.storage.models import Event
from backend.storage.numbers import spell_all


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
    """Add an event to the history; if a request caused it, the event contains its `request_id`."""
    data = dict(data or {})
    if current_request_id := request_id():
        data["request_id"] = current_request_id
    message = redact(clean_text(message))
    values = {"run_id": run_id, "attempt": attempt, "kind": kind, "level": level, "step": step}
    texts = {"message": message, "data": spell_all(redact_document(data))}
    session.execute(insert(Event).values(**values, **texts))


def load_events(
    session: Session, run_id: str, *, after_id: int | None = None, limit: int = 200, backwards: bool = False
) -> Sequence[Event]:
    """Return events of a run, oldest or newest first, starting after the event with the id `after_id`."""
    query = select(Event).where(Event.run_id == run_id)
    if after_id is not None:
        query = query.where(Event.id < after_id if backwards else Event.id > after_id)
    return session.scalars(query.order_by(Event.id.desc() if backwards else Event.id).limit(limit)).all()


def event_json(event: Event) -> dict[str, Any]:
    """Return an event as the HTTP API shows it."""
    return {
        "id": str(event.id),
        "run": event.run_id,
        "attempt": event.attempt,
        "at": iso_time(event.at),
        "kind": event.kind,
        "level": event.level,
        "step": event.step,
        "message": event.message,
        "data": event.data,
    }
