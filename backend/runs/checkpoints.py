"""Rows of checkpoints."""

from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from backend.models import Checkpoint, Run


def checkpoints_of(session: Session, run_id: str) -> list[Checkpoint]:
    """Every checkpoint of a run, the one to continue from first: newest step, then newest attempt."""
    query = (
        select(Checkpoint)
        .where(Checkpoint.run_id == run_id)
        .order_by(Checkpoint.step.desc(), Checkpoint.attempt.desc())
    )
    return list(session.scalars(query))


def add_checkpoint(session: Session, row: dict[str, Any]) -> None:
    """Enter a checkpoint whose directory is complete; entering it again changes nothing."""
    known = select(Checkpoint.id).where(Checkpoint.run_id == row["run_id"], Checkpoint.path == row["path"])
    if session.scalar(known) is None:
        session.add(Checkpoint(**row))
        # The run has come further: failures before this no longer count.
        session.execute(update(Run).where(Run.id == row["run_id"]).values(own_failures=0))


def forget_old_checkpoints(session: Session, run_id: str, *, keep: int) -> set[str]:
    """Keep the rows of the newest `keep` and of the best held-out accuracy; returns their paths."""
    rows = checkpoints_of(session, run_id)
    measured = [row for row in rows if row.manifest.get("accuracy") is not None]
    best = max(measured, key=lambda row: row.manifest["accuracy"], default=None)
    kept = {row.id for row in rows[:keep]} | ({best.id} if best else set())
    session.execute(delete(Checkpoint).where(Checkpoint.run_id == run_id, Checkpoint.id.not_in(kept)))
    return {row.path for row in rows if row.id in kept}
