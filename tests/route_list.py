"""The operations of the application, from routers, plain routes and mounts."""

from collections.abc import Iterator

from fastapi import FastAPI
from starlette.routing import BaseRoute, Mount

EXAMPLE_VALUES = {
    "key": "nobody",
    "run_id": "nobody",
    "experiment_id": "nobody",
    "completion_id": "1",
    "view_id": "nobody",
    "sha256": "0" * 64,
    "session_id": "0" * 64,
    "name": "nothing",
    "name:path": "x/y",
    "path:path": "x",
}
"""Example values of path parameters."""


def operations(app: FastAPI) -> set[str]:
    """Return `METHOD /path` of each operation, as in permissions.py. HEAD is part of GET."""
    return {f"{method} {path}" for route in app.router.routes for method, path in _list_operations(route)}


def _list_operations(route: BaseRoute) -> Iterator[tuple[str, str]]:
    if isinstance(route, Mount):
        yield "GET", f"{route.path}/{{path:path}}"
        return
    contexts = getattr(route, "effective_route_contexts", None)
    for context in contexts() if contexts else [route]:
        yield from ((method, context.path) for method in context.methods - {"HEAD"})


def filled_in(path: str) -> str:
    """Return a path with example values of its parameters."""
    for name, example in EXAMPLE_VALUES.items():
        path = path.replace(f"{{{name}}}", example)
    assert "{" not in path, f"tests/route_list.py does not know the parameter of {path}"
    return path
