"""Find the settings of a run that differ from the defaults of its preset and policy."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Text, cast, func, select
from sqlalchemy.orm import Session

from backend.config.merge import usual_config
from backend.config.run import RunConfig
from backend.metrics.grouping import flatten
from backend.storage.models import Run

MAX_SETTINGS = 20
"""Maximum number of settings that are reported for one run."""
EXCLUDED_PREFIXES = (
    "seed",
    "steps",
    "preset",
    "policy.name",
    "evaluation.",
    "checkpointing.",
    "recording.",
    "resources.",
)
"""Prefixes of paths that the list shows elsewhere or that do not change what is learned."""


def changed_settings(session: Session, config_hashes: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the changed settings by dotted path for each config hash, none for configs of other trainers."""
    first_run_by_hash = select(func.min(Run.id)).where(Run.config_hash.in_(set(config_hashes)))
    query = select(Run.config_hash, cast(Run.config, Text))
    rows = session.execute(query.where(Run.id.in_(first_run_by_hash.group_by(Run.config_hash))))
    return {config_hash: _find_changes(config) for config_hash, config in rows}


@lru_cache(maxsize=2_000)
def _find_changes(config_json: str) -> dict[str, Any]:
    """Return the settings of a config that differ from the usual config of its preset and policy.

    The result is cached, because the comparison takes milliseconds. Items that are missing from a list of
    the config are not reported, because the new items say enough.
    """
    try:
        config = RunConfig.model_validate_json(config_json)
        current_settings, usual_settings = (
            dict(flatten(c.model_dump(mode="json"))) for c in (config, usual_config(config))
        )
    except ValidationError:
        return {}
    lists = tuple(f"{path}." for path, value in current_settings.items() if isinstance(value, list))
    differences = (
        (path, value)
        for path, value in current_settings.items()
        if not path.startswith(EXCLUDED_PREFIXES)
        and (usual_settings[path] != value if path in usual_settings else not path.startswith(lists))
    )
    return dict(islice(differences, MAX_SETTINGS))
