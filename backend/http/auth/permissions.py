"""Permissions of all routes: the roles that may call them. A route that is not listed is closed to everyone.

An entry is `METHOD /path` in the syntax of the router; HEAD has the permissions of GET.
`tests/habits/test_routes.py` checks that the entries match the routes of the application.
"""

import re
from enum import StrEnum

from starlette.routing import compile_path

from backend.http.pages import HOME, PAGES, REDIRECTS


class Role(StrEnum):
    """The role of a caller; each role has its own token."""

    VIEWER = "viewer"
    """Can read everything, but change nothing."""

    OPERATOR = "operator"
    """Can read and change everything."""

    WRITER = "writer"
    """Can push the runs of another trainer, and only read whether they should stop."""


PEOPLE = (Role.OPERATOR, Role.VIEWER)
"""Roles that log in with a browser."""


PUBLIC = (
    "GET /healthz",
    "GET /grpolab.py",
    "GET /login",
    "POST /login",
    "GET /static/{path:path}",
    "GET /vendor/plotly.min.js",
)
"""Routes that are open to everyone and reveal nothing about this installation."""

READS = (
    *(f"GET {path}" for path in (HOME, *(page.path for page in PAGES), *REDIRECTS)),
    "GET /docs",
    "GET /help",
    "GET /help/search",
    "GET /help/{name}",
    "GET /help/decisions/{name}",
    "GET /help/pictures/{name}",
    "GET /openapi.json",
    "GET /readyz",
    "GET /metrics",
    "GET /api/v1/session",
    "DELETE /api/v1/session",  # only its own session
    "GET /api/v1/sessions",  # a viewer sees only its own sessions
    "DELETE /api/v1/sessions/{session_id}",  # a viewer can end only its own sessions
    "GET /api/v1/help",
    "GET /api/v1/status",
    "GET /api/v1/config-schema",
    "GET /api/v1/presets",
    "GET /api/v1/recipes",
    "GET /api/v1/data-recipes",
    "GET /api/v1/suite-recipes",
    "GET /api/v1/evaluations",
    "GET /api/v1/metric-catalog",
    "GET /api/v1/problems",
    "GET /api/v1/policies",
    "GET /api/v1/datasets",
    "POST /api/v1/validate",  # computes, but changes nothing
    "POST /api/v1/problems/preview",  # computes, but changes nothing
    "GET /api/v1/experiments",
    "POST /api/v1/experiments/plan",  # computes, but changes nothing
    "GET /api/v1/experiments/{experiment_id}",
    "GET /api/v1/searches",
    "GET /api/v1/matrix",
    "GET /api/v1/runs",
    "GET /api/v1/runs/ids",
    "GET /api/v1/run-fields",
    "GET /api/v1/run-values",
    "GET /api/v1/views",
    "GET /api/v1/runs/{run_id}",
    "GET /api/v1/runs/{run_id}/checkpoints",
    "GET /api/v1/runs/{run_id}/checkpoints/copies",
    "GET /api/v1/runs/{run_id}/files/{name:path}",
    "GET /api/v1/runs/{run_id}/archive",
    "GET /api/v1/runs/{run_id}/model",
    "GET /api/v1/runs/{run_id}/events",
    "GET /api/v1/runs/{run_id}/logs",
    "GET /api/v1/runs/{run_id}/metrics.csv",
    "GET /api/v1/series",
    "GET /api/v1/runs/{run_id}/diagnosis",
    "POST /api/v1/runs/{run_id}/trials/plan",  # computes, but changes nothing
    "GET /api/v1/runs/{run_id}/breakdown",
    "GET /api/v1/signal-budget",
    "GET /api/v1/trials",
    "GET /api/v1/rollouts",
    "GET /api/v1/rollouts/loss",
    "GET /api/v1/rollouts/steps",
    "GET /api/v1/rollouts/counts",
    "GET /api/v1/rollouts/evidence",
    "GET /api/v1/rollouts/mismatch",
    "GET /api/v1/rollouts/probes",
    "GET /api/v1/rollouts/prompts",
    "GET /api/v1/rollouts/prompts.jsonl",
    "GET /api/v1/rollouts/pass-rates/{sha256}",
    "GET /api/v1/rollouts/{completion_id}/tokens",
    "GET /api/v1/rollouts/search",
    "GET /api/v1/rollouts/search/steps",
    "GET /api/v1/rollouts/search/export",
    "GET /api/v1/rollouts/lift",
    "GET /api/v1/rollouts/labels",
    "POST /api/v1/rollouts/what-if",  # computes, but changes nothing
    "GET /api/v1/workers",
    "GET /api/v1/queue",
    "GET /api/v1/stream",
)
"""Routes for viewers and operators."""

WRITES = (
    "POST /api/v1/experiments",
    "POST /api/v1/experiments/check",
    "POST /api/v1/searches/{experiment_id}/stop",
    "DELETE /api/v1/runs",
    "POST /api/v1/runs/actions",
    "PUT /api/v1/views",
    "DELETE /api/v1/views/{view_id}",
    "PATCH /api/v1/runs/{run_id}",
    "DELETE /api/v1/runs/{run_id}",
    "POST /api/v1/runs/{run_id}/restore",
    "POST /api/v1/runs/{run_id}/stop",
    "POST /api/v1/runs/{run_id}/pause",
    "POST /api/v1/runs/{run_id}/resume",
    "POST /api/v1/runs/{run_id}/retry",
    "POST /api/v1/runs/{run_id}/clone",
    "POST /api/v1/runs/{run_id}/fork",
    "POST /api/v1/runs/{run_id}/evaluations",
    "POST /api/v1/runs/{run_id}/check",
    "POST /api/v1/runs/{run_id}/trials",
    "POST /api/v1/datasets",
    "POST /api/v1/datasets/preview",
    "POST /api/v1/datasets/{sha256}/repeats",
    "DELETE /api/v1/datasets/{sha256}",
    "POST /api/v1/imports",
    "POST /api/v1/rollouts/pass-rates",
    "POST /api/v1/rollouts/labels/import",
    "POST /api/v1/rollouts/{completion_id}/labels",
    "DELETE /api/v1/rollouts/{completion_id}/labels",
)
"""Routes for operators only, with a rate limit."""

PUSHES = (
    "GET /api/v1/pushes/{key}",
    "POST /api/v1/pushes/{key}",
)
"""Routes for operators and writers, who can only access their own runs, with a rate limit per writer."""

FILES = (
    ("POST", "/api/v1/datasets"),
    ("POST", "/api/v1/datasets/preview"),
    ("POST", "/api/v1/imports"),
    ("POST", "/api/v1/rollouts/labels/import"),
)
"""Routes with a file instead of JSON as the body; they check its size and type themselves."""


class Access(StrEnum):
    """The access that a request needs."""

    PUBLIC = "public"
    READ = "read"
    WRITE = "write"
    PUSH = "push"


ROLES_BY_ACCESS = {
    Access.READ: PEOPLE,
    Access.WRITE: (Role.OPERATOR,),
    Access.PUSH: (Role.OPERATOR, Role.WRITER),
}
"""Roles that have each access."""


GROUPS = {Access.PUBLIC: PUBLIC, Access.READ: READS, Access.WRITE: WRITES, Access.PUSH: PUSHES}


def _compile_lines() -> dict[str, list[tuple[re.Pattern[str], Access]]]:
    """Return the entries by method, with fixed paths before paths with parameters."""
    patterns_by_method: dict[str, list[tuple[re.Pattern[str], Access]]] = {}
    lines = [(line, access) for access, group in GROUPS.items() for line in group]
    for line, access in sorted(lines, key=lambda item: "{" in item[0]):
        method, path = line.split(" ")
        patterns_by_method.setdefault(method, []).append((compile_path(path)[0], access))
    return patterns_by_method


_LINES = _compile_lines()


def permitted_methods(path: str) -> list[str]:
    """Return the methods that are permitted for a path."""
    return [method for method, lines in _LINES.items() if any(pattern.match(path) for pattern, _ in lines)]


def required_access(method: str, path: str) -> Access | None:
    """Return the access that a request needs; None if it matches no entry."""
    for pattern, access in _LINES.get("GET" if method == "HEAD" else method, []):
        if pattern.match(path):
            return access
    return None
