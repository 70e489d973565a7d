"""All stored points of a run, in blocks and rows, including hidden ones."""

from sqlalchemy.orm import Session

from backend.metrics.lineage import LineageSegment
from backend.metrics.windows import StoredPoint, iterate_points, load_run_points


def stored_points(session: Session, run_id: str) -> list[StoredPoint]:
    """Return the stored points by step, attempt and name."""
    (segment,) = load_run_points(session, [LineageSegment(run_id)], all_attempts=True)
    return list(iterate_points(session, segment))
