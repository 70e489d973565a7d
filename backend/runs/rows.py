"""Create database rows for queued runs."""

from typing import Any

from backend.config.merge import config_hash
from backend.config.run import RunConfig
from backend.storage.engine import new_id


def run_row(name: str, variant: str, config: RunConfig) -> dict[str, Any]:
    """Return the row of a new queued run."""
    return {
        "id": new_id(),
        "name": name,
        "variant": variant,
        "seed": config.seed,
        "config": config.model_dump(mode="json"),
        "config_hash": config_hash(config),
        "steps": config.steps,
        "devices": config.resources.devices,
        "nodes": config.resources.nodes,
        "status": "queued",
    }
