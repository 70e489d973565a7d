"""Lineage of a checkpoint: its run, config and origin, which the checkpoint itself contains.

A database that lost its newest transactions does not know the newest checkpoints. Complete checkpoints of the
same lineage can be adopted. Nothing else in a run's directory is trusted.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from backend.config.run import RunConfig
from worker.checkpoints.files import list_checkpoints
from worker.checkpoints.fork import ForkOrigin


class Lineage(NamedTuple):
    """The run, config and origin of a checkpoint."""

    run_id: str
    config: RunConfig
    origin: str
    """SHA-256 of the manifest of the checkpoint that the run started from, or "" if it started from
    scratch.
    """

    def document(self, *, attempt: int, accuracy: float | None) -> dict[str, Any]:
        """Return the lineage as JSON values for a checkpoint."""
        return {
            "run": self.run_id,
            "config": self.config.model_dump(mode="json"),
            "origin": self.origin,
            "attempt": attempt,
            "accuracy": accuracy,
        }


class UnrecordedCheckpoint(NamedTuple):
    """A checkpoint of the run without a database row."""

    directory: Path
    step: int
    attempt: int
    accuracy: float | None


def make_lineage(run_id: str, config: RunConfig, origin: ForkOrigin | None) -> Lineage:
    """Return the lineage of a run's checkpoints."""
    return Lineage(run_id, config, origin.sha256 if origin else "")


def unrecorded_checkpoints(
    root: Path, recorded_names: Collection[str], lineage: Lineage
) -> list[UnrecordedCheckpoint]:
    """Return the unverified checkpoints of this lineage below `root` that have no row."""
    candidates = (
        _read_unrecorded(directory, lineage)
        for directory in list_checkpoints(root)
        if directory.name not in recorded_names
    )
    return [checkpoint for checkpoint in candidates if checkpoint is not None]


def _read_unrecorded(directory: Path, lineage: Lineage) -> UnrecordedCheckpoint | None:
    try:
        state = json.loads((directory / "trainer/state.json").read_bytes())
        lineage_fields = state["about"]
        written_by = Lineage(
            lineage_fields["run"],
            RunConfig.model_validate(lineage_fields["config"]),
            lineage_fields["origin"],
        )
        checkpoint = UnrecordedCheckpoint(
            directory, int(state["step"]), int(lineage_fields["attempt"]), lineage_fields["accuracy"]
        )
    except (OSError, ValueError, KeyError, TypeError, ValidationError):
        return None  # written by another version, or damaged
    return checkpoint if written_by == lineage else None
