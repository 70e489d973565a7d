"""Origins of runs: this service, or another trainer, whose log was imported or which pushes the run."""

from typing import Literal

from backend.base.errors import Conflict
from backend.storage.models import Run

ORIGINS = {
    "trl": "TRL",
    "verl": "verl",
    "slime": "slime",
    "tensorboard": "TensorBoard",
    "wandb": "W&B",
    "trackio": "Trackio",
    "csv": "CSV",
    "parquet": "Parquet",
    "jsonl": "JSONL",
    "text": "text",
    "script": "a script",
    "grpolab": "GRPO Lab",
}
"""Titles of the origins that a run may have, by the word in `run.origin`."""

PushOrigin = Literal["trl", "verl", "script"]
"""Origins of pushed runs."""


ARCHIVED = "grpolab"
"""Origin of a run that was imported from an archive of another installation of this service."""

OF_ARCHIVED = ("cloned", "forked", "evaluated")
"""Origins of runs whose config and checkpoints are this service's."""


def has_run_config(run: Run) -> bool:
    """Return whether its config is a RunConfig: a run of this service, here or elsewhere."""
    return run.origin in {"", ARCHIVED}


def refuse_imported(run: Run, action: str) -> None:
    """Raise Conflict for a run of another trainer, which does not allow the `action`: "resumed", "forked"."""
    if run.origin == ARCHIVED:
        if action not in OF_ARCHIVED:
            raise Conflict(
                f"this run was imported from an archive: it cannot be {action}, but it can be forked"
            )
    elif run.origin:
        whose = ORIGINS.get(run.origin, run.origin)
        if run.writer is not None:
            how = f"is pushed by {whose}"
        else:
            how = f"was imported from {'an' if whose[0] in 'AEIOU' else 'a'} {whose} log"
        raise Conflict(f"this run {how} and has no checkpoints: it cannot be {action}")
