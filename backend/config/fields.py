"""The fields of a run's config, by section, with options, defaults and ranges: read from the JSON Schema."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from backend.config.run import RunConfig

Node = Mapping[str, Any]
"""A node of the JSON Schema."""


OPEN_ENDED = {"object": "an object", "array": "a list", "string": "text"}
MAX_LISTED = 24
"""Maximum number of listed choices; a longer list is only counted."""
EDGES = (
    ("minimum", "at least"),
    ("exclusiveMinimum", "above"),
    ("maximum", "at most"),
    ("exclusiveMaximum", "below"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A field as its table shows it."""

    path: str
    default: str
    """JSON, or the name of the option for a union; empty for a section."""
    values: str
    """Choices or range, in Markdown."""
    meaning: str
    required: bool = False


@dataclass(slots=True)
class Section:
    """A part of the config with its own fields: a model, a union of models or a list of models."""

    path: str
    """Dotted path in the config; empty for the config itself."""
    options: dict[str, str] = field(default_factory=dict)
    """Name and meaning of every member of a union."""
    rows: dict[Row, dict[str, None]] = field(default_factory=dict)
    """Every field, with the options that have it, each once and in order."""


def sections() -> dict[str, Section]:
    """Return every section of RunConfig by its path, each parent before its children."""
    root = RunConfig.model_json_schema()
    sections_by_path: dict[str, Section] = {}
    _read("", root, root["$defs"], sections_by_path)
    return sections_by_path


def _read(path: str, node: Node, models: Node, sections_by_path: dict[str, Section]) -> None:
    """Add the section at `path` and those below it; a section shared by several options is read once."""
    section = sections_by_path.setdefault(path, Section(path))
    for name, member in _members(node, models):
        if name and name not in section.options:
            section.options[name] = member.get("description", "")
        for key, inner in member["properties"].items():
            resolved = _resolve(inner, models)
            if "const" in resolved:
                continue
            at = f"{path}.{key}".lstrip(".")
            row = _row(at, resolved, models, required=key in member.get("required", ()))
            section.rows.setdefault(row, {})[name] = None
            if any(_members(resolved, models)):
                _read(at, resolved, models, sections_by_path)


def _resolve(node: Node, models: Node) -> dict[str, Any]:
    """Return the node behind a `$ref`; keys beside the reference take precedence."""
    if "$ref" not in node:
        return dict(node)
    return _resolve(models[node["$ref"].rpartition("/")[2]], models) | {
        key: value for key, value in node.items() if key != "$ref"
    }


def _members(node: Node, models: Node) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the models that a value of this node can be, by the option's name; a plain model has the name
    ''.
    """
    if "properties" in node:
        yield _option(node), dict(node)
    items = [node["items"]] if "items" in node else []
    for member_node in (*node.get("oneOf", ()), *node.get("anyOf", ()), *items):
        yield from _members(_resolve(member_node, models), models)


def _option(model: Node) -> str:
    """Return the `type` or `name` of this member of a union."""
    tags = (model["properties"].get(key, {}).get("const") for key in ("type", "name"))
    return next((tag for tag in tags if tag), "")


def _row(path: str, node: Node, models: Node, *, required: bool) -> Row:
    values = ", or ".join(filter(None, _values(node, models)))
    return Row(path, _default(node), values, node.get("description", ""), required)


def _default(node: Node) -> str:
    value = node.get("default")
    if isinstance(value, Mapping):
        return str(value.get("type", ""))
    if isinstance(value, list):
        return ", ".join(map(_name, value))
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _name(list_item: Any) -> str:
    """Return an item of a list: the name or type of an object, anything else as JSON."""
    return (
        str(list_item.get("name") or list_item.get("type"))
        if isinstance(list_item, Mapping)
        else json.dumps(list_item)
    )


def _values(node: Node, models: Node) -> Iterator[str]:
    """Yield each allowed kind of value separately."""
    names = [name for name, _ in _members(node, models) if name]
    plain = [_resolve(alternative, models) for alternative in node.get("anyOf", ())]
    for alternative in (node_ for node_ in plain if "properties" not in node_):
        yield from _values(alternative, models)
    if names:
        yield ("a list of " if node.get("type") == "array" else "") + _codes(names)
    elif choices := node.get("items", {}).get("enum"):
        yield "a list of " + _choices(choices)
    elif not plain and not any(_members(node, models)):
        yield _plain(node)


def _plain(node: Node) -> str:
    if "const" in node or "enum" in node:
        return _choices(node.get("enum", [node.get("const")]))
    if node.get("type") == "boolean":
        return _codes(["true", "false"])
    if "prefixItems" in node:
        return f"{len(node['prefixItems'])} values, each {_range(node['prefixItems'][0])}"
    return _range(node) or OPEN_ENDED.get(node.get("type", ""), "")


def _choices(values: list[Any]) -> str:
    return _codes(values) if len(values) <= MAX_LISTED else f"one of {len(values)} names"


def _range(node: Node) -> str:
    if "minimum" in node and "maximum" in node:
        return f"{_format_number(node['minimum'])} to {_format_number(node['maximum'])}"
    return ", ".join(f"{word} {_format_number(node[edge])}" for edge, word in EDGES if edge in node)


def _format_number(number: float) -> str:
    """Return an end of a range: `1,000,000` and not `1000000.0`, `1e-06` unchanged."""
    return f"{int(number):,}" if number == int(number) else f"{number:g}"


def _codes(names: list[Any]) -> str:
    return ", ".join(f"`{name}`" if name != "" else "empty" for name in names)
