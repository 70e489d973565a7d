"""The fields that queries can use: columns of a run, fields of its config, and metrics."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, get_args

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from backend.base.errors import FieldError, InvalidRequest
from backend.config.causes import Cause, Verdict
from backend.config.metrics import METRICS, find_metric
from backend.config.run import RunConfig
from backend.metrics.known import unknown_name_message
from backend.metrics.store import find_keys
from backend.runs.lifecycle import STATUSES
from backend.runs.query.json_paths import SEGMENT_PATTERN, JsonValue
from backend.runs.query.syntax import Name, QueryError
from backend.storage.models import Run

CONFIG_PREFIX = "config."
MAX_NAME_CHARACTERS = 128
MAX_NAMED = 5
"""Maximum number of fields that an error message lists."""

FieldType = Literal["text", "number", "date", "tags", "config", "metric"]


@dataclass(frozen=True, slots=True)
class Field:
    """A field that a query can use."""

    name: str
    type: FieldType
    column: Any = None
    """SQL column of a text, number or date."""
    path: tuple[str, ...] = ()
    """Keys in `run.config` or `run.summary`."""
    values: Sequence[str] = ()
    """Allowed values; empty if the field allows any."""


COLUMNS: dict[str, Field] = {
    field.name: field
    for field in (
        Field("name", "text", Run.name),
        Field("id", "text", Run.id),
        Field("experiment", "text"),
        Field("variant", "text", Run.variant),
        Field("status", "text", Run.status, values=STATUSES),
        Field("verdict", "text", Run.verdict, values=get_args(Verdict)),
        Field("cause", "text", Run.cause, values=get_args(Cause)),
        Field("reason", "text", Run.reason),
        Field("notes", "text", Run.notes),
        Field("origin", "text", Run.origin),
        Field("tag", "tags"),
        Field("seed", "number", Run.seed),
        Field("steps", "number", Run.steps),
        Field("step", "number", Run.last_step),
        Field("onset", "number", Run.onset_sick),
        Field("priority", "number", Run.priority),
        Field("created", "date", Run.created_at),
        Field("queued", "date", Run.queued_at),
        Field("started", "date", Run.started_at),
        Field("finished", "date", Run.finished_at),
    )
}
"""Fields that are columns; they take precedence over config fields and metrics of the same name."""

ALIASES = {"tags": "tag"}

_NO_VERDICT = "no_verdict"
"""Display name of the verdict `inconclusive` on the pages, with an underscore instead of the space."""


def stored_spelling(field: Field, text: str) -> str:
    """Return the stored form of a value if the field has fixed values: "Never learned" as "never_learned"."""
    if not field.values:
        return text
    normalized = text.lower().replace(" ", "_")
    return "inconclusive" if field.name == "verdict" and normalized == _NO_VERDICT else normalized


def find_field(session: Session, name: Name) -> Field:
    """Return the field with a name; raise QueryError with similar names if it is unknown."""
    text = ALIASES.get(name.text, name.text)
    if name.statistic:
        return _metric_field(session, name)
    if text in COLUMNS:
        return COLUMNS[text]
    if text.startswith(CONFIG_PREFIX):
        return _config_field(session, name, text.removeprefix(CONFIG_PREFIX))
    if find_metric(text) is not None or find_keys(session, [text]):
        return _metric_field(session, name)
    paths = [path for path in config_paths() if path == text or path.endswith(f".{text}")]
    if text in paths or len(paths) == 1:
        return _field_of_path(text if text in paths else paths[0])
    if paths:
        raise QueryError(f"{text!r} is ambiguous: {_first_names(paths)}", name.offset)
    if inner_paths := [path for path in config_paths() if f".{text}." in f".{path}"]:
        raise QueryError(f"{text!r} has several fields: {_first_names(inner_paths)}", name.offset)
    raise QueryError(_unknown_field_message(text), name.offset)


def _metric_field(session: Session, name: Name) -> Field:
    if find_metric(name.text) is None and not find_keys(session, [name.text]):
        raise QueryError(unknown_name_message(name.text), name.offset)
    if not SEGMENT_PATTERN.fullmatch(name.text):
        raise QueryError(
            "a metric whose name contains quotes, braces or commas cannot be queried", name.offset
        )
    statistic = name.statistic or "last"
    return Field(
        name.text, "metric", path=(statistic, name.text, *(["value"] if statistic == "best" else []))
    )


def _config_field(session: Session, name: Name, path: str) -> Field:
    """Return the field for a path of the config schema, or of any stored config; raise QueryError.

    Configs of other trainers may have any structure.
    """
    field = _field_of_path(path)
    if any(config_path == path or config_path.startswith(f"{path}.") for config_path in config_paths()):
        return field
    if not all(map(SEGMENT_PATTERN.fullmatch, field.path)):
        raise QueryError(f"{path!r} is not a path of a config", name.offset)
    if not session.scalar(select(exists().where(JsonValue(Run.config, field.path).kind.is_not(None)))):
        raise QueryError(_unknown_field_message(name.text), name.offset)
    return field


def require_path(session: Session, path: str, parameter: str) -> None:
    """Raise InvalidRequest for a parameter if no config can have this path and no stored config has it."""
    try:
        _config_field(session, Name(f"{CONFIG_PREFIX}{path}", offset=0), path)
    except QueryError as error:
        raise InvalidRequest([FieldError(parameter, error.errors[0].message)]) from error


def _field_of_path(path: str) -> Field:
    return Field(f"{CONFIG_PREFIX}{path}", "config", path=tuple(path.split(".")))


def _first_names(paths: Sequence[str]) -> str:
    """Return a text with the first paths and the number of the others."""
    listed_paths = [f"{CONFIG_PREFIX}{path}" for path in paths[:MAX_NAMED]]
    return ", ".join(listed_paths) + (f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else "")


def _unknown_field_message(text: str) -> str:
    if len(text) > MAX_NAME_CHARACTERS:
        return f"there is no field {text[:40]!r}..."
    names = [*COLUMNS, *METRICS, *(f"{CONFIG_PREFIX}{path}" for path in config_paths()), *_path_endings()]
    close_matches = get_close_matches(text, names, n=3)
    hint = (
        f"did you mean {' or '.join(close_matches)}?"
        if close_matches
        else "GET /api/v1/run-fields lists them"
    )
    return f"there is no field {text!r}; {hint}"


def _path_endings() -> list[str]:
    """Return the last segments of all paths, which people often use as names: `lr`, `temperature`."""
    return sorted({path.rpartition(".")[2] for path in config_paths()})


@cache
def config_paths() -> tuple[str, ...]:
    """Return the dotted paths of all fields that a config can have; a list counts as one field."""
    schema = RunConfig.model_json_schema()
    return tuple(dict.fromkeys(_leaf_paths(schema, schema["$defs"], "", ())))


def _leaf_paths(
    node: Any, definitions: dict[str, Any], path: str, ancestors: tuple[str, ...]
) -> Iterator[str]:
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        if name not in ancestors:
            yield from _leaf_paths(definitions[name], definitions, path, (*ancestors, name))
        return
    for key in ("anyOf", "oneOf", "allOf"):
        for option in node.get(key, ()):
            yield from _leaf_paths(option, definitions, path, ancestors)
    if "properties" in node:
        for key, child in node["properties"].items():
            yield from _leaf_paths(child, definitions, f"{path}.{key}" if path else key, ancestors)
    elif not node.keys() & {"anyOf", "oneOf", "allOf"} and node.get("type") != "null":
        yield path
