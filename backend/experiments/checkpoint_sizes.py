"""Estimate the size of checkpoints from similar runs, or else from the config."""

from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.base.settings import Settings
from backend.catalog.policies.directories import read_config
from backend.config.run import RunConfig
from backend.runs.retention import max_kept_checkpoints
from backend.storage.models import Checkpoint, Run

MAX_READ_CHECKPOINTS = 100
"""Number of newest checkpoints whose size is read."""

PARAMETERS_BY_MODEL = {"tiny": 800_768, "tiny_moe": 1_787_904}
"""Number of parameters of each built-in policy."""

MAX_TEXT_BYTES = 400_000
"""Size of the tokenizer, configs and manifest of a small policy."""

BYTES_PER_PARAMETER = {"float32": 4, "bfloat16": 2, "float16": 2}
MASTER_BYTES = 4
"""Bytes per parameter of moments and master weights, which are float32."""


def max_checkpoints(config: RunConfig, *, after_step: int = 0) -> int:
    """Return the maximum number of checkpoints that exist at the same time, including the one being written.

    For a fork, only the checkpoints that it saves after the step `after_step` are counted.
    """
    rule, steps = config.checkpointing, config.steps
    saves = -(-steps // rule.every) - after_step // rule.every if rule.every else min(steps, 1)
    return min(saves, max_kept_checkpoints(keep=rule.keep, spaced=rule.spaced) + 1)


def checkpoint_bytes(session: Session, config: RunConfig, settings: Settings) -> float | None:
    """Return the size of one checkpoint in bytes; None if it cannot be estimated."""
    query = (
        select(Run.config, Checkpoint.bytes_total)
        .join(Run, Run.id == Checkpoint.run_id)
        .order_by(Checkpoint.created_at.desc())
        .limit(MAX_READ_CHECKPOINTS)
    )
    shape = _shape(config.model_dump(mode="json"))
    known_sizes = (size for other_config, size in session.execute(query) if _shape(other_config) == shape)
    if (size := next(known_sizes, None)) is not None:
        return float(size)
    parameters = _parameters(config.policy.name, settings.models_dir)
    return None if parameters is None else MAX_TEXT_BYTES + float(parameters * _bytes_per_parameter(config))


def _shape(config: dict[str, Any]) -> tuple[object, ...]:
    """Return the settings that determine the size of a checkpoint."""
    objective = config["objective"]
    return (
        config["policy"]["name"],
        config["policy"].get("revision", ""),
        config["policy"]["dtype"],
        config["updates"].get("rule", "adam"),
        config["sampling"].get("staleness", 0),
        objective["advantage"]["type"] == "critic",
        objective.get("reference", {}).get("type", "fixed"),
    )


def _bytes_per_parameter(config: RunConfig) -> int:
    weights = BYTES_PER_PARAMETER[config.policy.dtype]
    moments = 2 * MASTER_BYTES
    master = MASTER_BYTES if weights < MASTER_BYTES else 0
    policy = weights + (moments + master if config.updates.rule == "adam" else 0)
    critic = weights + moments + master if config.objective.advantage.type == "critic" else 0
    reference = weights if config.objective.reference.type != "fixed" else 0
    return policy + critic + reference + config.sampling.staleness * weights


def _parameters(policy: str, models_dir: Path) -> int | None:
    if policy in PARAMETERS_BY_MODEL:
        return PARAMETERS_BY_MODEL[policy]
    model_config = read_config(models_dir / policy)
    if model_config is None:
        return None
    stored_bytes = BYTES_PER_PARAMETER.get(
        str(model_config.get("dtype") or model_config.get("torch_dtype")), 2
    )
    return sum(path.stat().st_size for path in (models_dir / policy).glob("*.safetensors")) // stored_bytes
