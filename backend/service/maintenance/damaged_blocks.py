"""Report damaged blocks of points once in the history of their run."""

from collections.abc import Iterable

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.metrics.block_check import damage_sentence
from backend.metrics.block_damage import BlockPlace
from backend.runs.events import add_event
from backend.storage.models import Event, Run

KIND = "data"


def tell_damage(session: Session, damages: Iterable[tuple[BlockPlace, str]]) -> int:
    """Add an event for each block that was not reported before; return the number of events."""
    added_count = 0
    for block, reason in list(damages):
        message = damage_sentence(session, block, reason)
        event_query = select(Event.id).where(Event.run_id == block.run, Event.message == message)
        if session.get(Run, block.run) is not None and session.scalar(event_query.limit(1)) is None:
            add_event(session, KIND, message, run_id=block.run, attempt=block.attempt, level="error")
            added_count += 1
    return added_count


def tell_block(session: Session, block: BlockPlace, reason: str) -> None:
    """Add the event of one block in the transaction that replaces the block."""
    tell_damage(session, [(block, reason)])
