"""Launch the demo experiment through the service's HTTP API, once per installation."""

import hashlib
import json
from http.client import HTTPException
from typing import Any

from backend.base.errors import Unavailable
from backend.base.outgoing import fetch
from backend.base.settings import Settings
from backend.config.recipes import RECIPES
from backend.http.auth.permissions import Role
from backend.http.auth.tokens import read_or_create_token

DEMO = ("demo_healthy", "demo_collapse")

MAX_BYTES = 16_000_000
"""Maximum size of a response of the service, in bytes."""


def launch_demo(settings: Settings, url: str) -> str:
    """Launch the demo at the service with this URL, and return a description of its runs.

    A repeated launch returns the runs of the first one.
    """
    variants = [
        {"name": name, **RECIPES[name].config.model_dump(mode="json", exclude={"seed"})} for name in DEMO
    ]
    body = {"name": "demo", "base": {}, "variants": variants, "seeds": [0]}
    # The demo of another version is a different request.
    key = "demo-" + hashlib.sha256(json.dumps(body).encode()).hexdigest()[:16]
    api = url + "/api/v1"
    answer = _request(settings, f"{api}/experiments", body, {"Idempotency-Key": key})
    # A repeated launch returns the first response, so the current states are requested separately.
    current_runs = [_request(settings, f"{api}/runs/{run['id']}") for run in answer["runs"]]
    if not current_runs:
        return "already launched; its runs were deleted since"
    runs = ", ".join(f"{run['name']} ({run['status']})" for run in current_runs)
    is_new = all(run["status"] == "queued" for run in current_runs)
    return f"{len(current_runs)} runs: {runs}" if is_new else f"already launched: {runs}"


def _request(
    settings: Settings,
    address: str,
    body: dict[str, Any] | None = None,
    more_headers: dict[str, str] | None = None,
) -> dict[str, Any]:
    headers = {
        "Authorization": f"Bearer {read_or_create_token(settings, Role.OPERATOR)}",
        "Content-Type": "application/json",
        **(more_headers or {}),
    }
    data = None if body is None else json.dumps(body).encode()
    try:
        status, content = fetch(address, body=data, headers=headers, max_bytes=MAX_BYTES, seconds=30.0)
    except (OSError, HTTPException) as error:
        raise Unavailable(f"the demo was not launched: {error}") from None
    try:
        answer: dict[str, Any] = json.loads(content)
        if status < 300:
            return answer
        raise Unavailable(f"the demo was not launched: {answer['detail']}")
    except (ValueError, KeyError, TypeError):
        raise Unavailable(f"the demo was not launched: the service answered {status}") from None
