"""Values by which runs are sorted. Common ones have an indexed column, the others are only in JSON.

An index on a JSON expression is not possible, because SQLite refuses its JSON functions in the indexes of an
untrusted schema (`trusted_schema` in storage/engine.py).
"""

from collections.abc import Callable, Mapping
from typing import Any

COLUMN_BY_METRIC = {
    "reward/mean": "sort_reward",
    "reward/accuracy": "sort_accuracy",
    "eval/accuracy": "sort_eval_accuracy",
    "length/mean": "sort_length",
}
"""Column with the last value of each metric, by metric name."""

NUMBER_COLUMN_BY_PATH = {
    "optimizer.lr": "sort_lr",
    "sampling.group_size": "sort_group_size",
    "sampling.temperature": "sort_temperature",
}
"""Column of each numeric config field, by its path."""

TEXT_COLUMN_BY_PATH = {"preset": "sort_preset", "policy.name": "sort_policy"}
"""Column of each text field of the config, by its path."""


def sort_values(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the column values for a summary, which must be stored in the same statement as the summary."""
    return {column: _number(summary["last"].get(metric)) for metric, column in COLUMN_BY_METRIC.items()}


def last_value_default(metric: str) -> Callable[[Any], float | None]:
    """Return a function that computes the default of a metric's column in a new row."""

    def value(context: Any) -> float | None:
        summary = context.get_current_parameters().get("summary") or {}
        return _number(summary.get("last", {}).get(metric))

    return value


def config_number_default(path: str) -> Callable[[Any], float | None]:
    """Return a function that computes the default of a numeric config column in a new row."""
    return lambda context: _number(_config_value(context, path))


def config_text_default(path: str) -> Callable[[Any], str | None]:
    """Return a function that computes the default of a text config column in a new row."""

    def value(context: Any) -> str | None:
        config_value = _config_value(context, path)
        return config_value if isinstance(config_value, str) else None

    return value


def _config_value(context: Any, path: str) -> Any:
    value = context.get_current_parameters().get("config")
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _number(value: Any) -> float | None:
    """Return a finite number, or None for a spelled NaN or infinity."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
