"""Find points that an archive cannot contain, because their blocks are or were damaged."""

from sqlalchemy import select

from backend.metrics.block_check import DAMAGE_MARK, damage_sentence, find_damaged_blocks
from backend.metrics.lineage import load_lineages
from backend.storage.engine import Sessions, open_read_session
from backend.storage.models import Event


def lost_points(sessions: Sessions, run_id: str) -> list[str]:
    """Return a sentence about each block whose points are missing, including blocks of a fork's ancestors."""
    sentences: dict[str, None] = {}
    with open_read_session(sessions) as session:
        for segment in load_lineages(session, [run_id])[run_id]:
            messages = select(Event.message).where(
                Event.run_id == segment.run, Event.message.contains(DAMAGE_MARK)
            )
            sentences |= dict.fromkeys(session.scalars(messages.order_by(Event.id)))
            for block, reason in find_damaged_blocks(session, segment.run):
                if block.first_step <= segment.last_step and not block.is_outline:
                    sentences[damage_sentence(session, block, reason)] = None
    return list(sentences)
