"""What a run will take: counted from its config, and timed from runs of the same size that were seen here."""

import statistics
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.config.run import RunConfig
from backend.config.sizes import most_bytes, most_tokens
from backend.experiments.checkpoint_sizes import checkpoint_bytes, most_checkpoints
from backend.models import Run
from backend.settings import Settings

LOOKED_AT = 300
"""Newest runs whose step time is looked at."""

Estimates = dict[str, float | None]


def estimates(session: Session, config: RunConfig, settings: Settings) -> Estimates:
    """Per run; `seconds` and `step_seconds` are None until a run of the same size was seen."""
    checkpoints, size = most_checkpoints(config), checkpoint_bytes(session, config, settings)
    step_seconds = _seen_step_seconds(session, config)
    return {
        "seconds": None if step_seconds is None else step_seconds * config.steps,
        "step_seconds": step_seconds,
        "completions": float(config.sampling.prompts_per_step * config.sampling.group_size * config.steps),
        "tokens_at_most": float(most_tokens(config)),
        "disk_bytes": float(most_bytes(config)),
        "checkpoints": float(checkpoints),
        "checkpoint_bytes": None if size is None else checkpoints * size,
    }


def _seen_step_seconds(session: Session, config: RunConfig) -> float | None:
    """Median step time of the newest runs with the same policy, sizes and refills."""
    query = (
        select(Run.config, Run.summary)
        .where(Run.last_step > 0)
        .order_by(Run.created_at.desc())
        .limit(LOOKED_AT)
    )
    wanted = _size(config.model_dump(mode="json"))
    seen = [
        seconds
        for other, summary in session.execute(query)
        if isinstance(seconds := summary.get("last", {}).get("time/step_seconds"), float)
        and _size(other) == wanted
    ]
    return statistics.median(seen) if seen else None


def _size(config: dict[str, dict[str, Any]]) -> tuple[object, ...]:
    sampling, updates = config["sampling"], config["updates"]
    sizes = [sampling[key] for key in ("prompts_per_step", "group_size", "max_new_tokens")]
    return (
        config["policy"]["name"],
        config["policy"]["dtype"],
        sampling.get("precision", "policy"),
        *sizes,
        updates["epochs"],
        updates["minibatches"],
        updates.get("rule", "adam"),
        updates.get("resample_each_epoch", False),
        config.get("filters", {}).get("refill", {"type": "none"}),
        _critic_epochs(config["objective"]),
    )


def _critic_epochs(objective: dict[str, Any]) -> object:
    """How often a critic sees each step's completions; None without a critic."""
    return objective["value"]["epochs"] if objective["advantage"]["type"] == "critic" else None
