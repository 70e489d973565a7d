"""Origins of runs: this service, or the log of another trainer that a run was imported from."""

from backend.db.models import Run
from backend.errors import Conflict

ORIGINS = {
    "trl": "TRL",
    "verl": "verl",
    "tensorboard": "TensorBoard",
    "wandb": "W&B",
    "csv": "CSV",
    "jsonl": "JSONL",
}
"""Titles of the origins that a run may have, by the word in `run.origin`."""


def refuse_imported(run: Run, what: str) -> None:
    """Raise Conflict for an imported run, which cannot be `what`: "resumed", "forked"."""
    if run.origin:
        whose = ORIGINS.get(run.origin, run.origin)
        article = "an" if whose[0] in "AEIOU" else "a"
        raise Conflict(
            f"this run was imported from {article} {whose} log and has no checkpoints: it cannot be {what}"
        )
