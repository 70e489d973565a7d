"""Find the runs that use an uploaded dataset."""

from sqlalchemy import Text, cast, select
from sqlalchemy.orm import Session

from backend.storage.models import Run

MAX_RUN_NAMES = 5


def runs_using(session: Session, sha256: str) -> list[str]:
    """Return the names of at most MAX_RUN_NAMES unfinished runs that use the dataset, even in the trash."""
    has_hash = cast(Run.config, Text).contains(sha256)
    query = select(Run.name).where(Run.status != "finished", Run.origin == "", has_hash)
    return list(session.scalars(query.order_by(Run.created_at).limit(MAX_RUN_NAMES)))
