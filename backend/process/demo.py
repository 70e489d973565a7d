"""Launches the demo experiment through the service's own HTTP interface, once per installation."""

import hashlib
import json
import urllib.error
import urllib.request
from typing import Any

from backend.auth.permissions import Role
from backend.auth.tokens import token_of
from backend.config.recipes import RECIPES
from backend.errors import Unavailable
from backend.settings import Settings

DEMO = ("demo_healthy", "demo_collapse")


def launch_demo(settings: Settings, url: str) -> str:
    """The demo's runs, in words; a repeated request finds the same experiment. `url` is the service's."""
    variants = [
        {"name": name, **RECIPES[name].config.model_dump(mode="json", exclude={"seed"})} for name in DEMO
    ]
    body = {"name": "demo", "base": {}, "variants": variants, "seeds": [0]}
    # Another version's demo is another request.
    key = "demo-" + hashlib.sha256(json.dumps(body).encode()).hexdigest()[:16]
    answer = _post(settings, url + "/api/v1/experiments", body, key=key)
    runs = [f"{run['name']} ({run['status']})" for run in answer["runs"]]
    return f"{len(runs)} runs: {', '.join(runs)}"


def _post(settings: Settings, address: str, body: dict[str, Any], *, key: str) -> dict[str, Any]:
    headers = {
        "Authorization": f"Bearer {token_of(settings, Role.OPERATOR)}",
        "Content-Type": "application/json",
        "Idempotency-Key": key,
    }
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)  # noqa: S310 - our own service
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - our own service
            answer: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as error:
        raise Unavailable(f"the demo was not launched: {_detail(error)}") from None
    except OSError as error:
        raise Unavailable(f"the demo was not launched: {error}") from None
    return answer


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["detail"])
    except (ValueError, KeyError):
        return f"the service answered {error.code}"
