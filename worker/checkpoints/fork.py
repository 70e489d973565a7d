"""Forks: where the parent's checkpoint is, and which of its parts still fit."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from backend.base.errors import Conflict
from backend.base.settings import Settings
from backend.config.run import RunConfig
from backend.runs.checkpoints import checkpoint_at
from backend.storage.models import Run


class ForkOrigin(NamedTuple):
    """The checkpoint that a fork continues behind, or whose policy an evaluation measures."""

    directory: Path
    sha256: str
    """Of its manifest."""
    run_id: str
    run_name: str
    config: RunConfig
    """Of the run that wrote it."""
    step: int
    """The step it was saved after."""


def origin_of(session: Session, run_id: str, settings: Settings) -> ForkOrigin | None:
    """The checkpoint that a run starts from; None: from scratch. Raises NotFound or Conflict if it no longer
    exists.
    """
    run = session.get_one(Run, run_id)
    if run.fork_step is None:
        return None
    if run.parent_run is None:
        raise Conflict(f"the run whose checkpoint of step {run.fork_step} it begins with was deleted")
    parent = session.get_one(Run, run.parent_run)
    checkpoint = checkpoint_at(session, parent.id, run.fork_step)
    directory = settings.artifacts_of(parent.id) / checkpoint.path
    config = RunConfig.model_validate(parent.config)
    return ForkOrigin(directory, checkpoint.sha256, parent.id, parent.name, config, run.fork_step)


def fitting(parts: Iterable[str], before: RunConfig, after: RunConfig) -> set[str]:
    """The parts of a checkpoint written under one config that mean the same under another."""
    old, new = _meaning(before), _meaning(after)
    return {name for name in parts if old.get(name) == new.get(name)}


def _meaning(config: RunConfig) -> dict[str, Any]:
    """For each part that a config may give another meaning: what must stay the same for it to fit."""
    kl = config.objective.kl
    return {
        "random": config.seed,
        "optimizer": config.updates.rule,
        "kl": (kl.type, getattr(getattr(kl, "controller", None), "type", None)),
        "entropy": config.objective.entropy.type,
        "ahead": (config.sampling, config.problems, config.rewards, config.length, config.filters),
        "pool": (config.sampling, config.problems, config.rewards, config.length, config.filters),
    }
