"""Tables of the config fields with options, defaults and ranges, read from the JSON Schema of RunConfig."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from backend.config.run import RunConfig

Node = Mapping[str, Any]
"""A node of the JSON Schema."""


WORDING_BY_TYPE = {"object": "an object", "array": "a list", "string": "text"}
MAX_LISTED_CHOICES = 24
"""Maximum number of choices that are listed. Of a longer list, only the number is shown."""
RANGE_WORDING = (
    ("minimum", "at least"),
    ("exclusiveMinimum", "above"),
    ("maximum", "at most"),
    ("exclusiveMaximum", "below"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table of a section, which describes a field."""

    path: str
    default: str
    """Default as JSON, or the name of the default option of a union, or "" for a section."""
    values: str
    """Choices or range in Markdown."""
    description: str
    required: bool = False


@dataclass(slots=True)
class Section:
    """A part of the config that has fields: a model, a union of models or a list of models."""

    path: str
    """Dotted path in the config, or "" for the config itself."""
    options: dict[str, str] = field(default_factory=dict)
    """Meaning of each member of a union, by name."""
    rows: dict[Row, dict[str, None]] = field(default_factory=dict)
    """Fields in order, each with the options that have it. The inner dict is an ordered set."""


def sections() -> dict[str, Section]:
    """Return all sections of RunConfig by path, with parents before children."""
    root = RunConfig.model_json_schema()
    sections_by_path: dict[str, Section] = {}
    _read("", root, root["$defs"], sections_by_path)
    return sections_by_path


def _read(path: str, node: Node, models: Node, sections_by_path: dict[str, Section]) -> None:
    """Add the section at `path` and all nested sections. Sections of several options are merged."""
    section = sections_by_path.setdefault(path, Section(path))
    for name, member in _members(node, models):
        if name and name not in section.options:
            section.options[name] = member.get("description", "")
        for key, field_node in member["properties"].items():
            resolved_node = _resolve(field_node, models)
            if "const" in resolved_node:
                continue
            field_path = f"{path}.{key}".lstrip(".")
            row = _row(field_path, resolved_node, models, is_required=key in member.get("required", ()))
            section.rows.setdefault(row, {})[name] = None
            if any(_members(resolved_node, models)):
                _read(field_path, resolved_node, models, sections_by_path)


def _resolve(node: Node, models: Node) -> dict[str, Any]:
    """Return the node that a `$ref` refers to. Keys next to the reference take precedence."""
    if "$ref" not in node:
        return dict(node)
    return _resolve(models[node["$ref"].rpartition("/")[2]], models) | {
        key: value for key, value in node.items() if key != "$ref"
    }


def _members(node: Node, models: Node) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the schema of each model that a value can be. A plain model has the name ""."""
    if "properties" in node:
        yield _option(node), dict(node)
    items = [node["items"]] if "items" in node else []
    for member_node in (*node.get("oneOf", ()), *node.get("anyOf", ()), *items):
        yield from _members(_resolve(member_node, models), models)


def _option(model: Node) -> str:
    """Return the `type` or `name` that selects this member of a union, or "" if there is none."""
    tags = (model["properties"].get(key, {}).get("const") for key in ("type", "name"))
    return next((tag for tag in tags if tag), "")


def _row(path: str, node: Node, models: Node, *, is_required: bool) -> Row:
    values = ", or ".join(filter(None, _values(node, models)))
    return Row(path, _default(node), values, node.get("description", ""), is_required)


def _default(node: Node) -> str:
    value = node.get("default")
    if isinstance(value, Mapping):
        return str(value.get("type", ""))
    if isinstance(value, list):
        return ", ".join(map(_name, value))
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _name(list_item: Any) -> str:
    """Return the name or type of an object in a list, or any other item as JSON."""
    return (
        str(list_item.get("name") or list_item.get("type"))
        if isinstance(list_item, Mapping)
        else json.dumps(list_item)
    )


def _values(node: Node, models: Node) -> Iterator[str]:
    """Yield a description of each allowed kind of value."""
    names = [name for name, _ in _members(node, models) if name]
    alternatives = [_resolve(alternative, models) for alternative in node.get("anyOf", ())]
    for alternative in (node_ for node_ in alternatives if "properties" not in node_):
        yield from _values(alternative, models)
    if names:
        yield ("a list of " if node.get("type") == "array" else "") + _codes(names)
    elif choices := node.get("items", {}).get("enum"):
        yield "a list of " + _choices(choices)
    elif not alternatives and not any(_members(node, models)):
        yield _plain(node)


def _plain(node: Node) -> str:
    if "const" in node or "enum" in node:
        return _choices(node.get("enum", [node.get("const")]))
    if node.get("type") == "boolean":
        return _codes(["true", "false"])
    if "prefixItems" in node:
        return f"{len(node['prefixItems'])} values, each {_range(node['prefixItems'][0])}"
    return _range(node) or WORDING_BY_TYPE.get(node.get("type", ""), "")


def _choices(values: list[Any]) -> str:
    return _codes(values) if len(values) <= MAX_LISTED_CHOICES else f"one of {len(values)} names"


def _range(node: Node) -> str:
    if "minimum" in node and "maximum" in node:
        return f"{_format_number(node['minimum'])} to {_format_number(node['maximum'])}"
    return ", ".join(
        f"{wording} {_format_number(node[edge])}" for edge, wording in RANGE_WORDING if edge in node
    )


def _format_number(number: float) -> str:
    """Return the end of a range as text, such as `1,000,000` or `1e-06`."""
    return f"{int(number):,}" if number == int(number) else f"{number:g}"


def _codes(names: list[Any]) -> str:
    return ", ".join(f"`{name}`" if name != "" else "empty" for name in names)
