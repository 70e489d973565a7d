"""Generate TypeScript declarations of the API's responses for the checks of the frontend: `make docs`.

`frontend/types/api.d.ts` is generated from the OpenAPI document, so that `make check` fails if a page reads a
field that a response model no longer has.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from backend.base.locations import FILES_ROOT
from backend.service.main import create_app

FILE = FILES_ROOT / "frontend" / "types" / "api.d.ts"

HEAD = "/** Objects of the API, as the service answers them. Written by `make docs`; do not edit. */"

SCALARS = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}
"""TypeScript name of each scalar type of JSON Schema."""


def main() -> None:
    """Write the declarations to `frontend/types/api.d.ts`."""
    FILE.write_text(declarations(), encoding="utf-8")


def declarations() -> str:
    """Return the text of `api.d.ts`, with a declaration for each schema that a response uses."""
    document = create_app().openapi()
    schemas = document["components"]["schemas"]
    used_schemas = sorted(_used_schemas(document["paths"], schemas))
    blocks = (_declaration(name, schemas[name]) for name in used_schemas)
    return "\n".join([HEAD, "declare namespace Api {", *("\n".join(block) for block in blocks), "}", ""])


def _used_schemas(paths: Mapping[str, Any], schemas: Mapping[str, Any]) -> set[str]:
    """Return the names of the schemas that responses refer to, directly or indirectly."""
    responses = [method["responses"] for path in paths.values() for method in path.values()]
    pending_names = [name for response in responses for name in _references(response)]
    used_names: set[str] = set()
    while pending_names:
        name = pending_names.pop()
        if name not in used_names:
            used_names.add(name)
            pending_names.extend(_references(schemas[name]))
    return used_names


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].rsplit("/", 1)[-1]
        for child in node.values():
            yield from _references(child)
    elif isinstance(node, list):
        for child in node:
            yield from _references(child)


def _declaration(name: str, schema: Mapping[str, Any]) -> list[str]:
    """Return an interface, or a type alias if the schema is not an object."""
    if "properties" not in schema:
        return [f"  type {name} = {_type(schema)};"]
    required_names = schema.get("required", [])
    fields = schema["properties"].items()
    lines = [f"    {key}{'' if key in required_names else '?'}: {_type(value)};" for key, value in fields]
    return [f"  interface {name} {{", *lines, "  }"]


def _type(schema: Mapping[str, Any]) -> str:
    """Return the TypeScript type of a schema."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(member) for member in schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        return " | ".join(f"'{value}'" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        item = _type(schema.get("items", {}))
        return f"({item})[]" if " | " in item else f"{item}[]"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values) if isinstance(values, Mapping) else 'any'}>"
    return SCALARS.get(schema.get("type", ""), "unknown")
