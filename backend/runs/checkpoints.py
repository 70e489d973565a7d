"""Database queries for checkpoints."""

from collections.abc import Collection
from typing import Any, Literal

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from backend.base.errors import NotFound
from backend.runs.retention import SavedCheckpoint, choose_kept_ids
from backend.storage.models import Checkpoint, Run

KeptFor = Literal["verdict", "warning"]


def load_checkpoints(session: Session, run_id: str) -> list[Checkpoint]:
    """Return all checkpoints of a run, sorted by step and attempt, newest first."""
    query = (
        select(Checkpoint)
        .where(Checkpoint.run_id == run_id)
        .order_by(Checkpoint.step.desc(), Checkpoint.attempt.desc())
    )
    return list(session.scalars(query))


def last_recorded_step(session: Session, run_id: str) -> int:
    """Return the last recorded step of a run."""
    return session.scalar(select(Run.last_step).where(Run.id == run_id)) or 0


def find_checkpoint_at(session: Session, run_id: str, step: int) -> Checkpoint:
    """Return the newest checkpoint of a step; raise NotFound if there is none."""
    rows = load_checkpoints(session, run_id)
    for row in rows:
        if row.step == step:
            return row
    name = session.scalar(select(Run.name).where(Run.id == run_id)) or repr(run_id)
    steps = ", ".join(map(str, sorted({row.step for row in rows}))) or "none"
    raise NotFound(f"{name} has no checkpoint of step {step}; it has checkpoints of steps: {steps}")


def add_checkpoint(session: Session, row: dict[str, Any]) -> None:
    """Add a checkpoint whose directory is complete, unless it was added before."""
    same_checkpoint = select(Checkpoint.id).where(
        Checkpoint.run_id == row["run_id"], Checkpoint.path == row["path"]
    )
    if session.scalar(same_checkpoint) is None:
        session.add(Checkpoint(**row))
        # The run has made progress: earlier failures no longer count.
        session.execute(update(Run).where(Run.id == row["run_id"]).values(own_failures=0))


def keep_before(session: Session, run_id: str, kind: KeptFor, *, healthy_step: int, sick_step: int) -> None:
    """Keep the newest checkpoint from before an onset instead of the one kept for the same kind so far.

    The onset lies after step `healthy_step` and at or before step `sick_step`. At most one checkpoint is kept
    for a verdict and one for a warning. Nothing changes if no checkpoint is old enough.
    """
    rows = load_checkpoints(session, run_id)
    checkpoint = next((row for row in rows if row.step <= healthy_step), None)
    if checkpoint is None or (checkpoint.kept_for == "verdict" and kind == "warning"):
        return
    for row in rows:
        if row.kept_for == kind:
            row.kept_for = row.onset = None
    checkpoint.kept_for, checkpoint.onset = kind, sick_step


def forget_old_checkpoints(
    session: Session,
    run_id: str,
    *,
    keep: int,
    spaced: int = 0,
    damaged_ids: Collection[str] = (),
    copied_paths: Collection[str] = (),
    uploading_paths: Collection[str] = (),
) -> set[str]:
    """Delete the rows of checkpoints that are no longer needed and return the paths of the others.

    The function keeps the checkpoints that `retention.choose_kept_ids` selects, the origins of forks, those
    saved before an onset, the newest path in `copied_paths` (the artifact store has no newer one) and all
    paths in `uploading_paths`. A checkpoint whose id is in `damaged_ids` is deleted and does not count
    towards the limits.
    """
    rows = [row for row in load_checkpoints(session, run_id) if row.id not in damaged_ids]
    origins = set(session.scalars(select(Run.fork_step).where(Run.parent_run == run_id)))
    saved_checkpoints = [
        SavedCheckpoint(row.id, row.step, row.attempt, row.manifest.get("accuracy")) for row in rows
    ]
    newest_copied = [row.step for row in rows if row.path in copied_paths][:1]
    protected_steps = {
        *newest_copied,
        *(row.step for row in rows if row.kept_for or row.path in uploading_paths),
    }
    needed_steps = protected_steps | {step for step in origins if step is not None}
    remaining_ids = choose_kept_ids(saved_checkpoints, keep=keep, spaced=spaced, needed_steps=needed_steps)
    session.execute(
        delete(Checkpoint).where(Checkpoint.run_id == run_id, Checkpoint.id.not_in(remaining_ids))
    )
    return {row.path for row in rows if row.id in remaining_ids}
