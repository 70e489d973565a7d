"""Origins of runs: this service, or another trainer, whose log was imported or which pushes the run."""

from typing import Literal

from backend.db.models import Run
from backend.errors import Conflict

ORIGINS = {
    "trl": "TRL",
    "verl": "verl",
    "tensorboard": "TensorBoard",
    "wandb": "W&B",
    "trackio": "Trackio",
    "csv": "CSV",
    "parquet": "Parquet",
    "jsonl": "JSONL",
    "script": "a script",
}
"""Titles of the origins that a run may have, by the word in `run.origin`."""

PushOrigin = Literal["trl", "verl", "script"]
"""Those that push runs."""


def refuse_imported(run: Run, what: str) -> None:
    """Raise Conflict for a run of another trainer, which cannot be `what`: "resumed", "forked"."""
    if run.origin:
        whose = ORIGINS.get(run.origin, run.origin)
        if run.writer is not None:
            how = f"is pushed by {whose}"
        else:
            how = f"was imported from {'an' if whose[0] in 'AEIOU' else 'a'} {whose} log"
        raise Conflict(f"this run {how} and has no checkpoints: it cannot be {what}")
