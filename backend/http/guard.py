"""Access control for the whole application: every path is denied unless it is permitted explicitly.

The checks, in order: Host header (421), size of URL and headers (400, 414, 431), same origin for all methods
except GET and HEAD (403), token or cookie (401), permissions of the role (403), rate limit (429), size, type
and syntax of the body (413, 415, 408, 400), and the number of large bodies (429). All responses get the
security headers.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from urllib.parse import parse_qs

import anyio.to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.base.errors import GrpoLabError
from backend.base.settings import Settings
from backend.http.auth.permissions import FILES, ROLES_BY_ACCESS, Access, Role, required_access
from backend.http.auth.sessions import BrowserSessions
from backend.http.auth.tokens import parse_cookies, token_role, token_writer
from backend.http.bodies import NO_DOCUMENT, LargeBodies, is_large, parse_body
from backend.http.frontend import is_navigation
from backend.http.limits import (
    MAX_BODY_BYTES,
    MAX_PUSH_BYTES,
    Buckets,
    address_refusal,
    body_refusal,
    read_body,
    too_many,
)
from backend.http.login import LoginPages, login_page
from backend.http.problem_details import error_response, problem

SAFE_METHODS = ("GET", "HEAD")

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; "
    "style-src 'self' 'unsafe-inline'; "  # Plotly writes style elements
    "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types grpolab default"  # frontend/src/lib/trusted.js
)

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

WRITES_AT_ONCE = 20
"""Burst of writes, in seconds of the rate limit, which allows changes to a long list of runs."""

FORBIDDEN = {
    Access.READ: "a writer's token can only push runs; this needs the operator's or a viewer's",
    Access.WRITE: "viewers cannot make changes; this needs the operator's token",
    Access.PUSH: "viewers cannot push runs; this needs a writer's token (`grpolab token --writer NAME`)",
}
"""Message for roles without an access."""


class Guard:
    """ASGI wrapper that admits only permitted requests."""

    def __init__(
        self, app: ASGIApp, settings: Settings, routes: Sequence[BaseRoute], sessions: BrowserSessions
    ) -> None:
        self._app = app
        self._settings = settings
        self._routes = routes
        self._hosts = allowed_hosts(settings)
        self._any_port = {name.lower() for name in settings.allowed_hosts if ":" not in name}
        self._sessions = sessions
        self._login = LoginPages(settings, sessions)
        self._large = LargeBodies()
        rate = settings.writes_per_second
        self._writes = Buckets(per_second=rate, burst=rate * WRITES_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return None
        guarded_send = _with_headers(send, is_api=scope["path"].startswith("/api/"))
        async with AsyncExitStack() as stack:
            try:
                rejection = await self._refusal_or_body(scope, receive, stack)
            except ClientDisconnect:
                return None
            except (GrpoLabError, HTTPException, OSError) as error:
                rejection = error_response(scope, error)
            return await (rejection or self._app)(scope, receive, guarded_send)

    async def _refusal_or_body(
        self, scope: Scope, receive: Receive, stack: AsyncExitStack
    ) -> Response | None:
        """Return the response to a refused request; otherwise None, with the parsed body in the scope."""
        headers = Headers(scope=scope)
        if (rejection := await self._refusal(scope, headers)) is not None:
            return rejection
        if scope["path"] == "/login" and scope["method"] in ("GET", "HEAD", "POST"):
            return await self._login.answer(scope, receive)
        if scope["method"] not in SAFE_METHODS and not _is_file(scope):
            await self._take_body(scope, receive, headers, stack)
        return None

    async def _take_body(
        self, scope: Scope, receive: Receive, headers: Headers, stack: AsyncExitStack
    ) -> None:
        """Read and parse the JSON body, which may be compressed for a push.

        A large body waits after it has been received, and holds its turn until `stack` is closed after the
        response.
        """
        access, state = required_access(scope["method"], scope["path"]), scope["state"]
        encoding = headers.get("content-encoding", "") if access is Access.PUSH else ""
        sender = state["role"], state["writer"]
        with self._large.count_bytes(*sender) as count:
            body = await read_body(receive, limit=_max_bytes(access), count=count)
            if is_large(body, encoding):
                await stack.enter_async_context(self._large.wait_for_turn(*sender))
            document = await anyio.to_thread.run_sync(parse_body, body, encoding) if body else NO_DOCUMENT
        state["document"] = document

    async def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        if not self._is_known_host(headers.getlist("host")):
            return problem(
                421,
                "Unknown host",
                "this service does not answer to that host name and port; add it to ALLOWED_HOSTS",
            )
        if (rejection := address_refusal(scope, headers)) is not None:
            return rejection
        bearer, writer = self._identify_token(headers)
        is_safe = scope["method"] in SAFE_METHODS
        access = required_access(scope["method"], scope["path"])
        login = await self._sessions.open_one(parse_cookies(self._settings, headers.getlist("cookie")))
        role = bearer or (login.role if login else None)
        if not is_safe and not _is_same_origin(headers, is_bearer=bearer is not None):
            if role is None and access is not Access.PUBLIC and not _has_origin(headers):
                return _not_found(scope)  # a script without its token
            return problem(403, "Forbidden", "cross-origin requests are not allowed")
        session = login.id if login and not bearer else ""
        scope.setdefault("state", {}).update(role=role, session=session, login=login, writer=writer)
        if access is Access.PUBLIC:
            return None
        ticket = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if scope["method"] == "GET" and ticket and not scope["path"].startswith("/api/"):
            return await self._login.swap_link(scope, ticket[0], role=role)
        if role is None:
            return _not_found(scope)
        return self._permission_refusal(scope, role, writer, access) or (
            None if is_safe or _is_file(scope) else body_refusal(headers, limit=_max_bytes(access))
        )

    def _permission_refusal(
        self, scope: Scope, role: Role, writer: str, access: Access | None
    ) -> Response | None:
        """Return the response if this role may not make the request, or not now; None if it may."""
        if access is None and any(route.matches(dict(scope))[0] is Match.FULL for route in self._routes):
            return problem(
                403, "Forbidden", "no role may call this: backend/http/auth/permissions.py has no line for it"
            )
        if access is not None and role not in ROLES_BY_ACCESS[access]:
            is_writer = role is Role.WRITER
            return problem(403, "Forbidden", FORBIDDEN[Access.READ if is_writer else access])
        is_change = access in (Access.WRITE, Access.PUSH) and scope["method"] not in SAFE_METHODS
        if is_change and (wait_seconds := self._writes.take_token(f"{access}:{role}:{writer}")):
            return too_many("changes at once", wait_seconds)
        return None

    def _is_known_host(self, values: list[str]) -> bool:
        if len(values) != 1:
            return False
        host = values[0].lower()
        return host in self._hosts or _without_port(host) in self._any_port

    def _identify_token(self, headers: Headers) -> tuple[Role | None, str]:
        """Return the role of the request's token, and the name of a writer."""
        token = _bearer(headers)
        if not token:
            return None, ""
        if (writer := token_writer(self._settings, token)) is not None:
            return Role.WRITER, writer
        return token_role(self._settings, token), ""


def allowed_hosts(settings: Settings) -> set[str]:
    """Return all Host headers that this service accepts."""
    names = {"127.0.0.1", "localhost", "[::1]"}
    if settings.host not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        names.add(f"[{settings.host}]" if ":" in settings.host.strip("[]") else settings.host.lower())
    hosts = {f"{name}:{settings.port}" for name in names}
    hosts |= {name.lower() for name in settings.allowed_hosts if ":" in name}
    return hosts | (names if settings.port == 80 else set())


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _is_same_origin(headers: Headers, *, is_bearer: bool) -> bool:
    """Apply the rules of Go's CrossOriginProtection; clients other than browsers identify themselves by a
    token.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    if origin is not None:
        return origin.partition("://")[2].lower() == headers.get("host", "").lower()
    return is_bearer


def _max_bytes(access: Access | None) -> int:
    return MAX_PUSH_BYTES if access is Access.PUSH else MAX_BODY_BYTES


def _is_file(scope: Scope) -> bool:
    return (scope["method"], scope["path"]) in FILES


def _bearer(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _has_origin(headers: Headers) -> bool:
    return "sec-fetch-site" in headers or "origin" in headers


def _not_found(scope: Scope) -> Response:
    if is_navigation(Request(scope)):
        return login_page("Log in to see this page.")
    detail = "a token is needed: Authorization: Bearer <token>, or the cookie of a logged-in browser"
    if _bearer(Headers(scope=scope)):
        detail = "the token is not valid"
    return problem(401, "Not logged in", detail, headers={"WWW-Authenticate": "Bearer"})


def _with_headers(send: Send, *, is_api: bool) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if is_api:
                headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sending
