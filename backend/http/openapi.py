"""Add authentication, permissions and links to the OpenAPI document."""

from typing import Any

from backend.http.auth.permissions import Access, required_access

ID_SOURCES: dict[str, tuple[str, dict[str, str]]] = {
    "GET /api/v1/runs": ("200", {"run_id": "items/0/id", "run": "items/0/id", "runs": "items/0/id"}),
    "GET /api/v1/experiments": ("200", {"experiment_id": "items/0/id"}),
    "POST /api/v1/experiments": ("201", {"experiment_id": "id", "run_id": "runs/0/id"}),
    "POST /api/v1/runs/{run_id}/clone": ("202", {"run_id": "id"}),
    "GET /api/v1/rollouts": ("200", {"completion_id": "items/0/completions/0/id"}),
}
"""Pointers to the values in responses that are parameters of other operations."""

CALLERS_BY_ACCESS = {
    Access.PUBLIC: "Everybody.",
    Access.READ: "Viewers and operators.",
    Access.WRITE: "Operators only.",
    Access.PUSH: "Writers and operators.",
}


def complete_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Add authentication, roles and links to the document that FastAPI generates."""
    schema["components"].setdefault("securitySchemes", {})["token"] = {
        "type": "http",
        "scheme": "bearer",
        "description": "The operator's token, a viewer's or a writer's; browsers hold a cookie instead.",
    }
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    }
    for line, operation in operations.items():
        access = required_access(*line.split(" "))
        operation["security"] = [] if access is Access.PUBLIC else [{"token": []}]
        operation["description"] = (
            f"{operation.get('description', '')} {CALLERS_BY_ACCESS[access] if access else ''}".strip()
        )
    for line, (status, pointers) in ID_SOURCES.items():
        operations[line]["responses"][status]["links"] = _links(operations, pointers)
    return schema


def _links(operations: dict[str, Any], pointers: dict[str, str]) -> dict[str, Any]:
    """Return a link to each operation with one of these parameters."""
    links = {}
    for operation in operations.values():
        required = {
            parameter["name"] for parameter in operation.get("parameters", []) if parameter["required"]
        }
        if link_parameters := {
            name: f"$response.body#/{pointers[name]}" for name in required & pointers.keys()
        }:
            name = operation["operationId"]
            links[name] = {"operationId": name, "parameters": link_parameters}
    return links
