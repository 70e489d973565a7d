"""Points that a run's archive cannot have: those of damaged blocks, and those that were given up before."""

from sqlalchemy import select

from backend.metrics.block_check import IS_DAMAGED, damaged, sentence
from backend.metrics.lineage import lineages
from backend.storage.engine import Sessions, reading
from backend.storage.models import Event


def lost_points(sessions: Sessions, run_id: str) -> list[str]:
    """A sentence on each block whose points the archive lacks, those of a fork's ancestors among them."""
    found: dict[str, None] = {}
    with reading(sessions) as session:
        for part in lineages(session, [run_id])[run_id]:
            told = select(Event.message).where(Event.run_id == part.run, Event.message.contains(IS_DAMAGED))
            found |= dict.fromkeys(session.scalars(told.order_by(Event.id)))
            for place, reason in damaged(session, part.run):
                if place.first_step <= part.last_step and not place.is_outline:
                    found[sentence(session, place, reason)] = None
    return list(found)
