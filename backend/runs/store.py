"""Queries about runs."""

from sqlalchemy.orm import Session

from backend.database import insert_into
from backend.models import LogChunk
from backend.text import clean_text


def append_log(session: Session, run_id: str, attempt: int, number: int, text: str) -> None:
    """Store piece `number` of a trainer's output; a piece that is there already stays as it is."""
    values = {"run_id": run_id, "attempt": attempt, "number": number, "text": clean_text(text)}
    session.execute(insert_into(session, LogChunk).values(**values).on_conflict_do_nothing())
