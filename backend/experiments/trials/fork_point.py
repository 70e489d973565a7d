"""Find the fork point of a trial: the newest existing state of a run from before its onset."""

from typing import NamedTuple

from sqlalchemy.orm import Session

from backend.base.errors import Conflict
from backend.base.settings import Settings
from backend.config.run import RunConfig
from backend.runs.checkpoints import load_checkpoints
from backend.storage.artifacts.reading import read_manifest
from backend.storage.models import Checkpoint, Run


class ForkPoint(NamedTuple):
    """The state from which every run of a trial starts."""

    run: str | None
    """Id of the run with the checkpoint; None if the runs start from scratch."""
    step: int
    due_step: int
    """Step of the last checkpoint that was due before the onset."""
    words: str


def fork_point(
    session: Session, settings: Settings, run: Run, config: RunConfig, last_healthy: int
) -> ForkPoint:
    """Return the newest checkpoint up to `last_healthy`, or else the state from which the run started.

    A fork started from a checkpoint of its parent; earlier steps had another config and cannot be used. Raise
    Conflict if no state is left, or if the run or its parent is in the trash.
    """
    refuse_trash(run)
    began_at = run.fork_step or 0
    last = max(last_healthy, began_at)
    interval = config.checkpointing.every
    planned_step = max(last // interval * interval if interval else 0, began_at)
    for row in load_checkpoints(session, run.id):
        if began_at < row.step <= last and manifest_exists(settings, row):
            planned_step = max(planned_step, row.step)
            return ForkPoint(
                run.id, row.step, planned_step, _fork_sentence(f"step {row.step}", row.step, planned_step)
            )
    if run.fork_step is None:
        return ForkPoint(None, 0, planned_step, _beginning_sentence(planned_step))
    parent = session.get(Run, run.parent_run) if run.parent_run else None
    rows = load_checkpoints(session, parent.id) if parent else []
    if parent is None or not any(row.step == began_at and manifest_exists(settings, row) for row in rows):
        raise Conflict(
            f"{run.name} continued step {began_at} of {parent.name if parent else 'a deleted run'}, and that "
            "checkpoint is gone: no trial can start from it"
        )
    refuse_trash(parent)
    location = f"step {began_at} of {parent.name}, where {run.name} began"
    return ForkPoint(parent.id, began_at, planned_step, _fork_sentence(location, began_at, planned_step))


def refuse_trash(run: Run) -> None:
    """Raise Conflict if the run is in the trash."""
    if run.deleted_at is not None:
        raise Conflict(f"{run.name} is in the trash: restore it first")


def manifest_exists(settings: Settings, row: Checkpoint) -> bool:
    """Return whether the manifest of a checkpoint exists; the runs verify the files themselves.

    Raise ArtifactFault if the artifact store is needed but unavailable.
    """
    try:
        read_manifest(settings, row)
    except (OSError, ValueError):
        return False
    return True


def _fork_sentence(checkpoint_text: str, step: int, planned_step: int) -> str:
    if step < planned_step:
        sentence = f"The checkpoint of step {planned_step} is gone."
        return f"{sentence} Every run forks from {checkpoint_text}, the nearest earlier one."
    return f"Every run forks from {checkpoint_text}, the last checkpoint before the onset."


def _beginning_sentence(planned_step: int) -> str:
    if planned_step:
        sentence = f"The checkpoint of step {planned_step} and all earlier ones are gone."
        return f"{sentence} Every run starts from step 0."
    return "There is no checkpoint before the onset. Every run starts from step 0."
