"""The runs that need an uploaded dataset."""

from sqlalchemy import Text, cast, select
from sqlalchemy.orm import Session

from backend.storage.models import Run

MAX_NAMED = 5


def runs_that_need(session: Session, sha256: str) -> list[str]:
    """Names of some runs that may still train on it: all but finished ones, the trash included."""
    mentions = cast(Run.config, Text).contains(sha256)
    query = select(Run.name).where(Run.status != "finished", Run.origin == "", mentions)
    return list(session.scalars(query.order_by(Run.created_at).limit(MAX_NAMED)))
