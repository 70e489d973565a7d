"""Find the checkpoint that a fork starts from, and the parts of it that fit."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from backend.base.errors import Conflict
from backend.base.settings import Settings
from backend.config.run import RunConfig
from backend.runs.checkpoints import find_checkpoint_at
from backend.storage.models import Run


class ForkOrigin(NamedTuple):
    """The checkpoint from which a fork continues, or whose policy an evaluation measures."""

    directory: Path
    sha256: str
    """SHA-256 of the checkpoint's manifest."""
    run_id: str
    run_name: str
    config: RunConfig
    """Config of the run that wrote the checkpoint."""
    step: int
    """Step after which the checkpoint was saved."""


def find_origin(session: Session, run_id: str, settings: Settings) -> ForkOrigin | None:
    """Return the checkpoint that a run starts from, or None if it starts from scratch.

    Raise NotFound or Conflict if the checkpoint no longer exists.
    """
    run = session.get_one(Run, run_id)
    if run.fork_step is None:
        return None
    if run.parent_run is None:
        raise Conflict(f"the run whose checkpoint of step {run.fork_step} it begins with was deleted")
    parent = session.get_one(Run, run.parent_run)
    checkpoint = find_checkpoint_at(session, parent.id, run.fork_step)
    directory = settings.artifact_dir(parent.id) / checkpoint.path
    config = RunConfig.model_validate(parent.config)
    return ForkOrigin(directory, checkpoint.sha256, parent.id, parent.name, config, run.fork_step)


def fitting_parts(part_names: Iterable[str], old_config: RunConfig, new_config: RunConfig) -> set[str]:
    """Return the parts of a checkpoint whose meaning is the same under both configs."""
    old_settings, new_settings = _part_settings(old_config), _part_settings(new_config)
    return {name for name in part_names if old_settings.get(name) == new_settings.get(name)}


def _part_settings(config: RunConfig) -> dict[str, Any]:
    """Return, for each part whose meaning depends on the config, the settings that must be equal."""
    kl = config.objective.kl
    return {
        "random": config.seed,
        "optimizer": config.updates.rule,
        "kl": (kl.type, getattr(getattr(kl, "controller", None), "type", None)),
        "entropy": config.objective.entropy.type,
        "ahead": (config.sampling, config.problems, config.rewards, config.length, config.filters),
        "pool": (config.sampling, config.problems, config.rewards, config.length, config.filters),
    }
