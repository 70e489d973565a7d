"""Fork point of a trial: the newest state of a run from before its onset that is still there."""

from typing import NamedTuple

from sqlalchemy.orm import Session

from backend.base.errors import Conflict
from backend.base.settings import Settings
from backend.config.run import RunConfig
from backend.runs.checkpoints import load_checkpoints
from backend.storage.artifacts.reading import read_manifest
from backend.storage.models import Checkpoint, Run


class ForkPoint(NamedTuple):
    """The state that every run of a trial begins with."""

    run: str | None
    """Id of the run whose checkpoint it is; None: the beginning."""
    step: int
    wanted: int
    """Step of the last checkpoint that was to be written before the onset."""
    words: str


def fork_point(
    session: Session, settings: Settings, run: Run, config: RunConfig, last_healthy: int
) -> ForkPoint:
    """Return the newest checkpoint up to `last_healthy`, else the state with which the run began.

    A fork began with a checkpoint of its parent; steps before that had another config and cannot be used.
    Raises Conflict where nothing is left, or where the run or that parent lies in the trash.
    """
    refuse_trash(run)
    began = run.fork_step or 0
    last = max(last_healthy, began)
    every = config.checkpointing.every
    planned_step = max(last // every * every if every else 0, began)
    for row in load_checkpoints(session, run.id):
        if began < row.step <= last and manifest_exists(settings, row):
            planned_step = max(planned_step, row.step)
            return ForkPoint(
                run.id, row.step, planned_step, _fork_sentence(f"step {row.step}", row.step, planned_step)
            )
    if run.fork_step is None:
        return ForkPoint(None, 0, planned_step, _beginning_sentence(planned_step))
    parent = session.get(Run, run.parent_run) if run.parent_run else None
    rows = load_checkpoints(session, parent.id) if parent else []
    if parent is None or not any(row.step == began and manifest_exists(settings, row) for row in rows):
        raise Conflict(
            f"{run.name} continued step {began} of {parent.name if parent else 'a deleted run'}, and that "
            "checkpoint has gone: there is nothing left to start a trial from"
        )
    refuse_trash(parent)
    where = f"step {began} of {parent.name}, where {run.name} began"
    return ForkPoint(parent.id, began, planned_step, _fork_sentence(where, began, planned_step))


def refuse_trash(run: Run) -> None:
    """Raise Conflict for a run in the trash."""
    if run.deleted_at is not None:
        raise Conflict(f"{run.name} is in the trash: restore it first")


def manifest_exists(settings: Settings, row: Checkpoint) -> bool:
    """Return whether the manifest that was written is still there; each run verifies the files themselves.

    Raises ArtifactFault where the artifact store would have to be asked.
    """
    try:
        read_manifest(settings, row)
    except (OSError, ValueError):
        return False
    return True


def _fork_sentence(where: str, step: int, planned_step: int) -> str:
    if step < planned_step:
        gone = f"The checkpoint of step {planned_step} has gone."
        return f"{gone} Every run forks from {where}, the nearest earlier one."
    return f"Every run forks from {where}, the last checkpoint before the onset."


def _beginning_sentence(planned_step: int) -> str:
    if planned_step:
        gone = f"The checkpoint of step {planned_step} has gone, and all earlier ones."
        return f"{gone} Every run starts from step 0."
    return "There is no checkpoint before the onset. Every run starts from step 0."
