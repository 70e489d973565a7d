"""The catalogue of query fields and of their stored values, which is used for completion."""

from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from backend.config.presets import PRESETS
from backend.runs.query.fields import COLUMNS, CONFIG_PREFIX, config_paths
from backend.storage.engine import is_postgres
from backend.storage.models import Experiment, MetricKey, Run

MAX_VALUES = 200
"""Maximum number of values of one field."""
MAX_METRICS = 5_000


def fields_json(session: Session) -> list[dict[str, Any]]:
    """Return all query fields, as described by `list_schemas.QueryField`."""
    stored_values = {
        "variant": _distinct_values(session, select(Run.variant).where(Run.variant != "")),
        "origin": _distinct_values(session, select(Run.origin).where(Run.origin != "")),
        "experiment": _distinct_values(session, select(Experiment.name)),
        "tag": _distinct_values(session, tag_rows(session)),
    }
    columns = [
        {
            "name": field.name,
            "type": field.type,
            "values": list(field.values) or stored_values.get(field.name, []),
        }
        for field in COLUMNS.values()
    ]
    metrics = session.scalars(select(MetricKey.name).order_by(MetricKey.name).limit(MAX_METRICS))
    config = [
        {
            "name": f"{CONFIG_PREFIX}{path}",
            "type": "config",
            "values": sorted(PRESETS) if path == "preset" else [],
        }
        for path in config_paths()
    ]
    return [*columns, *({"name": name, "type": "metric", "values": []} for name in metrics), *config]


def _distinct_values(session: Session, query: Select[Any]) -> list[str]:
    return list(session.scalars(query.distinct().order_by(query.selected_columns[0]).limit(MAX_VALUES)))


def tag_rows(session: Session) -> Select[Any]:
    """Return a query for the tags of all runs, one row per run and tag, as value and label."""
    elements = func.json_array_elements_text if is_postgres(session) else func.json_each
    tags = elements(Run.tags).table_valued("value", name="each_tag", joins_implicitly=True)
    return select(tags.c.value, tags.c.value.label("label")).select_from(Run)
