"""The origin of a run: this service, or another trainer whose log was imported or that pushes the run."""

from typing import Literal

from backend.base.errors import Conflict
from backend.storage.models import Run

ORIGIN_TITLES = {
    "trl": "TRL",
    "verl": "verl",
    "slime": "slime",
    "tensorboard": "TensorBoard",
    "wandb": "W&B",
    "trackio": "Trackio",
    "mlflow": "MLflow",
    "swanlab": "SwanLab",
    "csv": "CSV",
    "parquet": "Parquet",
    "jsonl": "JSONL",
    "text": "text",
    "script": "a script",
    "grpolab": "GRPO Lab",
}
"""Display name of each origin, by the value of `run.origin`."""

PushOrigin = Literal["trl", "verl", "script"]
"""Origins that a pushed run can have."""


ARCHIVE_ORIGIN = "grpolab"
"""Origin of a run that was imported from an archive of another installation."""

ARCHIVE_ACTIONS = ("cloned", "forked", "evaluated")
"""Actions that are allowed for a run imported from an archive, which has a config and checkpoints."""


def has_run_config(run: Run) -> bool:
    """Return whether the config of the run is a RunConfig, because it was trained by this service."""
    return run.origin in {"", ARCHIVE_ORIGIN}


def refuse_imported(run: Run, action: str) -> None:
    """Raise Conflict if the origin of the run does not allow the action, such as "resumed" or "forked"."""
    if run.origin == ARCHIVE_ORIGIN:
        if action not in ARCHIVE_ACTIONS:
            raise Conflict(
                f"this run was imported from an archive: it cannot be {action}, but it can be forked"
            )
    elif run.origin:
        origin = ORIGIN_TITLES.get(run.origin, run.origin)
        if run.writer is not None:
            description = f"is pushed by {origin}"
        else:
            description = f"was imported from {'an' if origin[0] in 'AEIOU' else 'a'} {origin} log"
        raise Conflict(f"this run {description} and has no checkpoints: it cannot be {action}")
