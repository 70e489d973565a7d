"""The catalog that the launch form loads first, in the format of the service."""

import json
from typing import Any

from backend.config.policies import BUILT_IN, LANGUAGE_MODEL
from backend.config.presets import PRESETS
from backend.config.run import RunConfig

CATALOG: dict[str, Any] = {
    "schema": RunConfig.model_json_schema(),
    "defaults": RunConfig().model_dump(mode="json"),
    "profiles": [policy.model_dump() for policy in (*BUILT_IN, LANGUAGE_MODEL)],
    "presets": [{"name": name, "config": preset.changes} for name, preset in PRESETS.items()],
}


def json_config(config: Any) -> Any:
    """Return a config as JSON holds it, with lists instead of tuples."""
    return json.loads(json.dumps(config))
