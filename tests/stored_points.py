"""Every point of a run that is stored, hidden ones included, whether it is in a block or a row."""

from sqlalchemy.orm import Session

from backend.metrics.lineage import Stretch
from backend.metrics.windows import StoredPoint, all_points, run_points_of


def stored_points(session: Session, run_id: str) -> list[StoredPoint]:
    """Return the stored points by step, attempt and name."""
    (segment,) = run_points_of(session, [Stretch(run_id)], all_attempts=True)
    return list(all_points(session, segment))
