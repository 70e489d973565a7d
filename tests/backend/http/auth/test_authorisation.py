"""Tests of the authorisation of every route and method, for every role, host and origin."""

import asyncio
import itertools
from typing import cast

import pytest
from starlette.staticfiles import StaticFiles

from backend.http.auth.permissions import GROUPS, Access, Role
from backend.http.auth.tokens import cookie_name, writer_token
from backend.http.guard import Guard
from backend.service.main import Service
from tests.api_client import TOKEN, VIEWER_TOKEN, client_of_service, create_session_cookie
from tests.route_list import filled_in, operations

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "get")
UNKNOWN_PATHS = (
    "/nothing",
    "/api/v1/nothing",
    "/api/v1",
    "//",
    "/static",
    "/api/v1/runs/",
    "/API/V1/RUNS",
    "/api/v1/runs/x/y",
)
HOSTS = ("127.0.0.1:8400", "evil.example:8400")
ORIGINS = (
    {},
    {"sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "origin": "http://127.0.0.1:8400"},
    {"origin": "http://127.0.0.1:8400"},
    {"origin": "http://evil.example"},
    {"origin": "null"},
)
ROLES_BY_ACCESS = {
    Access.READ: {Role.OPERATOR, Role.VIEWER},
    Access.WRITE: {Role.OPERATOR},
    Access.PUSH: {Role.OPERATOR, Role.WRITER},
}
ADMITTED_STATUS = 299
PATHS_TAKEN_FOR_AN_ID = {
    "/api/v1/datasets/preview": filled_in("/api/v1/datasets/{sha256}"),
    "/api/v1/experiments/check": filled_in("/api/v1/experiments/{experiment_id}"),
    "/api/v1/experiments/plan": filled_in("/api/v1/experiments/{experiment_id}"),
    "/api/v1/runs/actions": filled_in("/api/v1/runs/{run_id}"),
    "/api/v1/runs/ids": filled_in("/api/v1/runs/{run_id}"),
}
"""Paths that match another route with a method that they do not have themselves."""


def may_come_from(origin, *, is_bearer):
    if "sec-fetch-site" in origin:
        return origin["sec-fetch-site"] in ("same-origin", "none")
    return origin["origin"] == "http://127.0.0.1:8400" if "origin" in origin else is_bearer


def credentials(settings, client):
    """Return cases of headers, the role that they prove, and whether they are a token in a header."""
    name = cookie_name(settings)
    return [
        ({}, None, False),
        ({"authorization": "Bearer wrong"}, None, False),
        ({"authorization": "Basic c2VjcmV0"}, None, False),
        ({"cookie": f"{name}=9999999999.{'0' * 43}.{'0' * 64}"}, None, False),
        ({"authorization": f"Bearer {VIEWER_TOKEN}"}, Role.VIEWER, True),
        ({"authorization": f"Bearer {TOKEN}"}, Role.OPERATOR, True),
        ({"authorization": f"Bearer {writer_token(settings, 'node')}"}, Role.WRITER, True),
        ({"cookie": f"{name}={create_session_cookie(client, Role.VIEWER)}"}, Role.VIEWER, False),
        ({"cookie": f"{name}={create_session_cookie(client)}"}, Role.OPERATOR, False),
    ]


def expected_status(method, path, lines, case):
    """Return the status that the gate must return, by the rules of docs/security.md."""
    host, origin, (_, role, is_bearer) = case
    is_safe = method in ("GET", "HEAD")
    if host != HOSTS[0]:
        return 421
    effective_method = "GET" if method == "HEAD" else method
    line = lines.get((effective_method, path)) or lines.get(
        (effective_method, PATHS_TAKEN_FOR_AN_ID.get(path, ""))
    )
    if not is_safe and not may_come_from(origin, is_bearer=is_bearer):
        is_forgetful_script = not origin and role is None and line is not Access.PUBLIC
        return 401 if is_forgetful_script else 403
    if line is Access.PUBLIC:
        return ADMITTED_STATUS
    if role is None:
        return 401
    if line is None and path.startswith("/static/"):
        return 403  # a mount accepts every method
    return ADMITTED_STATUS if line is None or role in ROLES_BY_ACCESS[line] else 403


@pytest.fixture
def gate(sqlite_url, settings):
    """A function that calls the service and returns the status, or 299 if the gate admits the request."""
    with client_of_service(settings, sqlite_url) as client:

        async def routes(scope, receive, send):
            await send({"type": "http.response.start", "status": ADMITTED_STATUS, "headers": []})
            await send({"type": "http.response.body"})

        app = cast("Service", client.app)
        guard = Guard(routes, settings, app.router.routes, app.state.browser_sessions)

        async def call(method, path, headers):
            messages = []

            async def receive():
                return {"type": "http.request", "body": b"", "more_body": False}

            async def send(message):
                messages.append(message)

            scope = {
                "type": "http", "method": method, "path": path, "raw_path": b"", "query_string": b"",
                "headers": [(name.encode(), header_value.encode()) for name, header_value in headers.items()],
                "client": ("127.0.0.1", 1), "scheme": "http", "root_path": "", "server": None,
            }  # fmt: skip
            await guard(scope, receive, send)
            return messages[0]["status"]

        yield client, call


def access_by_route():
    """Return the access level of each method and path, except the login, which the gate answers itself."""
    return {
        (line.split()[0], filled_in(line.split()[1])): access
        for access, group in GROUPS.items()
        for line in group
        if not line.endswith(" /login")
    }


def first_of_each_kind(lines):
    """Return one path for each access level and each method that has it."""
    kinds = {(kind, method): path for (method, path), kind in reversed(lines.items())}
    return set(kinds.values())


def wrong_answers(call, lines, requests):
    """Return the requests, as path, method and case, whose status is not the expected one."""

    async def collect():
        wrong_requests = []
        for path, method, case in requests:
            host, origin, (headers, _, _) = case
            status = await call(method, path, {"host": host, **origin, **headers})
            if status != expected_status(method, path, lines, case):
                wrong_requests.append((method, path, case, status))
        return wrong_requests

    return asyncio.run(collect())


def test_every_route_is_open_to_exactly_the_roles_that_may_call_it(gate, settings):
    client, call = gate
    lines = access_by_route()
    people = credentials(settings, client)
    requests = [(path, method, (HOSTS[0], {}, person)) for method, path in lines for person in people]
    assert wrong_answers(call, lines, requests) == []


@pytest.mark.parametrize("takes_all", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_no_method_host_or_origin_opens_a_route(gate, settings, takes_all):
    client, call = gate
    lines = access_by_route()
    all_paths = {filled_in(operation.split()[1]) for operation in operations(client.app)}
    paths_by_kind = all_paths & first_of_each_kind(lines) | set(UNKNOWN_PATHS[:3])
    paths = all_paths | set(UNKNOWN_PATHS) if takes_all else paths_by_kind
    known_host, unknown_host = HOSTS
    people = credentials(settings, client)
    cases = [
        *itertools.product([known_host], ORIGINS, people),
        *itertools.product([unknown_host], ORIGINS[:1], people),
    ]
    requests = [
        *itertools.product(sorted(paths_by_kind), ("GET", "POST", "get"), cases),
        *itertools.product(sorted(paths), METHODS, itertools.product([known_host], ORIGINS[:1], people)),
    ]
    assert wrong_answers(call, lines, requests) == []


def test_a_writer_cannot_log_in(stranger, settings):
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    response = stranger.post("/login", content=f"token={writer_token(settings, 'node')}", headers=form)
    assert response.status_code == 401
    assert "set-cookie" not in response.headers


def test_an_unlisted_route_is_closed_even_to_the_operator(client):
    client.app.add_api_route("/api/v1/forgotten", lambda: {"secret": 1})
    client.app.mount("/archive", StaticFiles(directory="/"))
    for path in ("/api/v1/forgotten", "/archive/x"):
        response = client.get(path)
        assert (response.status_code, response.headers["content-type"]) == (403, "application/problem+json")


def test_each_token_identifies_its_role(client, viewer):
    assert client.get("/api/v1/session").json() == {"role": "operator", "session": None}
    assert viewer.get("/api/v1/session").json() == {"role": "viewer", "session": None}
