"""Find out whether a metric is comparable between runs: which config fields that affect its scale differ."""

from collections.abc import Iterator, Mapping
from typing import Any

from backend.config.metrics import find_metric
from backend.storage.models import Run

UNSCALED_FIELDS = ("timeout_seconds",)
"""Fields of a reward term that do not change rewards."""


def incomparable_reasons(metric: str, run: Run, second: Run) -> list[str]:
    """Return why a metric has different scales in two runs: paths of config fields, or `origin`.

    The reward scales of other trainers are unknown, so such a metric cannot be compared between runs of
    different origins.
    """
    if run.origin == second.origin:
        return [] if run.origin else scale_differences(metric, run.config, second.config)
    metric_info = find_metric(metric)
    return ["origin"] if metric_info is not None and metric_info.scale else []


def scale_differences(metric: str, config: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return the paths of the fields that give a metric different scales in two configs; empty if it is
    comparable.
    """
    first_fields, second_fields = _scale_fields(metric, config), _scale_fields(metric, second)
    return [
        path
        for path in {**first_fields, **second_fields}
        if first_fields.get(path, ...) != second_fields.get(path, ...)
    ]


def _scale_fields(metric: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that affect the scale of the metric, by path."""
    metric_info = find_metric(metric)
    roots = metric_info.scale if metric_info else ()
    value_by_path = {
        path: value
        for root in roots
        for path, value in _flatten(_value_at(config, root), root)
        if not path.endswith(UNSCALED_FIELDS)
    }
    if metric_info is None or "<term>" not in metric_info.name:
        return value_by_path
    term = f"rewards.{metric.split('/')[1]}."
    return {
        path: value
        for path, value in value_by_path.items()
        if path.startswith(term) and path != f"{term}weight"
    }


def _value_at(config: Any, path: str) -> Any:
    for key in path.split("."):
        config = config.get(key) if isinstance(config, Mapping) else None
    return config


def _flatten(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and the value of all leaves; reward terms in a list are named by their labels."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from _flatten(child, f"{path}.{key}")
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        count_by_name: dict[str, int] = {}
        for item in value:
            name = str(item.get("entry_point") or item.get("name") or item.get("type"))
            count_by_name[name] = count_by_name.get(name, 0) + 1
            yield from _flatten(
                item, f"{path}.{name}" + (f" {count_by_name[name]}" if count_by_name[name] > 1 else "")
            )
    else:
        yield path, value
