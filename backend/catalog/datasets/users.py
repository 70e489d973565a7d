"""The runs that need an uploaded dataset."""

from sqlalchemy import Text, cast, select
from sqlalchemy.orm import Session

from backend.storage.models import Run

MAX_NAMED = 5


def runs_using(session: Session, sha256: str) -> list[str]:
    """Return the names of some unfinished runs that use the dataset, including runs in the trash."""
    mentions = cast(Run.config, Text).contains(sha256)
    query = select(Run.name).where(Run.status != "finished", Run.origin == "", mentions)
    return list(session.scalars(query.order_by(Run.created_at).limit(MAX_NAMED)))
