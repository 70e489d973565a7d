"""A client of a service in the same process."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from fastapi import FastAPI
from fastapi.routing import APIRoute
from sqlalchemy import Pool, QueuePool
from starlette.testclient import TestClient

from backend.base.settings import Settings
from backend.http.auth.permissions import Role
from backend.http.auth.tokens import new_cookie
from backend.http.dependencies import Lab
from backend.service.main import create_app
from backend.storage.models import BrowserSession

TOKEN = "secret"
VIEWER_TOKEN = "only-looking"
HOST = "http://127.0.0.1:8400"


def create_session_cookie(client: TestClient, role: Role = Role.OPERATOR) -> str:
    """Create a browser session and return its cookie."""
    lab: Lab = cast("FastAPI", client.app).state.lab
    cookie, login = new_cookie(lab.settings, role)
    with lab.sessions.begin() as session:
        session.add(BrowserSession(id=login.id, role=role, ends_at=float(login.ends_at)))
    return cookie


def replace_endpoint(client: TestClient, path: str, endpoint: Callable[[], Any]) -> None:
    """Replace the endpoint of a path whose permissions are known."""
    cast("FastAPI", client.app).router.routes.insert(0, APIRoute(path, endpoint))


def close_connections(pool: Pool) -> None:
    """Close all connections when no thread uses one, because a returned connection would stay open."""
    deadline = time.monotonic() + 30
    while cast("QueuePool", pool).checkedout() and time.monotonic() < deadline:
        time.sleep(0.01)
    pool.dispose()


@contextmanager
def client_of_service(
    settings: Settings, url: str, *, token: str = TOKEN, broker_url: str = "memory://"
) -> Iterator[TestClient]:
    """Yield a client of a service on the database `url`. With an empty `token`, it is not logged in."""
    app = create_app(settings.model_copy(update={"database_url": url, "broker_url": broker_url}))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    client = TestClient(app, base_url=HOST, follow_redirects=False, raise_server_exceptions=False)
    client.headers.update(headers)
    try:
        yield client
    finally:
        app.state.status.close()
        close_connections(app.state.lab.engine.pool)
