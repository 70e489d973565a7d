"""The gate around the whole application: default-deny for every path, whatever is mounted behind it.

In order: Host allow-list (421), same-origin rule for every method but GET and HEAD (403), token or cookie
(401), size and type of the body (413, 415). Every answer leaves with the security headers.
"""

import html
import time
from collections import deque
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.access import cookie_name, cookie_value, is_cookie, is_token, redeem_link
from backend.problem import problem
from backend.settings import Settings

PUBLIC_PATHS = ("/healthz", "/login")
PUBLIC_PREFIXES = ("/static/", "/vendor/")
SAFE_METHODS = ("GET", "HEAD")
BODY_BYTES = 1_000_000
TOO_LARGE = f"at most {BODY_BYTES:,} bytes are accepted"
LOGINS_PER_MINUTE = 10
COOKIE_SECONDS = 30 * 86400

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; "
    "style-src 'self' 'unsafe-inline'; "  # Plotly writes style elements
    "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

LOGIN_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>GRPO Lab: log in</title>
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 34rem; margin: 12vh auto; padding: 0 1rem }}
input {{ font: inherit; padding: .4rem .6rem; width: 100%; box-sizing: border-box }}
button {{ font: inherit; padding: .4rem 1rem; margin-top: .8rem }} code {{ white-space: nowrap }}</style>
<h1>GRPO Lab</h1>
<p>{message}</p>
<p>On the machine where it runs, <code>make link</code> prints a new link, which works once, for ten minutes.
Or enter the operator's token (<code>GRPOLAB_TOKEN</code>, else the file <code>token</code> in the state
directory):</p>
<form method="post" action="/login"><label>Token
<input name="token" type="password" autocomplete="current-password" required autofocus></label>
<button>Log in</button></form>
</html>
"""


class Guard:
    """ASGI wrapper that lets nothing through that has no right to be there."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._hosts = allowed_hosts(settings)
        self._any_port = {name.lower() for name in settings.allowed_hosts if ":" not in name}
        self._logins: deque[float] = deque()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return None
        guarded = _with_headers(send, is_api=scope["path"].startswith("/api/"))
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is None and scope["path"] == "/login":
            refusal = await self._log_in(scope, receive)
        if refusal is not None:
            return await refusal(scope, receive, guarded)
        return await self._app(scope, _limited(receive, headers), guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        if not self._is_known_host(headers.getlist("host")):
            return problem(
                HTTPStatus.MISDIRECTED_REQUEST,
                "Unknown host",
                "this service is not reached under that name and port; ALLOWED_HOSTS names further ones",
            )
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            return problem(400, "Bad request", "the address contains NUL")
        is_bearer = self._has_token(headers)
        is_safe = scope["method"] in SAFE_METHODS
        if not is_safe and not _is_same_origin(headers, is_bearer=is_bearer):
            return problem(403, "Forbidden", "this request comes from a page of another origin")
        if _is_public(scope["path"]):
            return None
        ticket = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        has_cookie = self._has_cookie(headers)
        if is_safe and ticket and not scope["path"].startswith("/api/"):
            return self._swap_link(scope, ticket[0], has_cookie=has_cookie)
        if not (is_bearer or has_cookie):
            return self._unknown(scope, headers, is_safe=is_safe)
        return None if is_safe else _body_refusal(headers)

    def _is_known_host(self, values: list[str]) -> bool:
        if len(values) != 1:
            return False
        host = values[0].lower()
        return host in self._hosts or _without_port(host) in self._any_port

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and is_token(self._settings, token.strip())

    def _has_cookie(self, headers: Headers) -> bool:
        jar: SimpleCookie = SimpleCookie()
        try:
            jar.load(headers.get("cookie", ""))
        except CookieError:
            return False
        morsel = jar.get(cookie_name(self._settings))
        return morsel is not None and is_cookie(self._settings, morsel.value)

    def _swap_link(self, scope: Scope, ticket: str, *, has_cookie: bool) -> Response:
        """A one-time link becomes a cookie and leaves the address bar."""
        if not has_cookie and not self._may_try_to_log_in():
            return _too_many_logins()
        if not redeem_link(self._settings, ticket) and not has_cookie:
            return _login_page("This link has been used already, or its ten minutes are over.")
        query = parse_qs(scope["query_string"].decode("latin-1"))
        rest = urlencode({key: value for key, value in query.items() if key != "token"}, doseq=True)
        path = "/" + scope["path"].lstrip("/")  # never an address of another host
        return self._logged_in(path + (f"?{rest}" if rest else ""))

    async def _log_in(self, scope: Scope, receive: Receive) -> Response:
        """The form of the login page."""
        if scope["method"] != "POST":
            return _login_page("Please log in.", status=200)
        if not self._may_try_to_log_in():
            return _too_many_logins()
        body = b""
        more = True
        while more and len(body) <= BODY_BYTES:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        token = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if not is_token(self._settings, token.strip()):
            return _login_page("That is not the operator's token.")
        return self._logged_in("/")

    def _logged_in(self, address: str) -> Response:
        response = RedirectResponse(address, HTTPStatus.SEE_OTHER)
        response.set_cookie(
            cookie_name(self._settings),
            cookie_value(self._settings),
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
        )
        return response

    def _may_try_to_log_in(self) -> bool:
        now = time.monotonic()
        while self._logins and self._logins[0] < now - 60:
            self._logins.popleft()
        self._logins.append(now)
        return len(self._logins) <= LOGINS_PER_MINUTE

    def _unknown(self, scope: Scope, headers: Headers, *, is_safe: bool) -> Response:
        is_page = (
            is_safe and not scope["path"].startswith("/api/") and "text/html" in headers.get("accept", "")
        )
        if is_page:
            return _login_page("This page needs you to be logged in.")
        detail = "a token is needed: Authorization: Bearer <token>, or the cookie of a logged-in browser"
        return problem(401, "Not logged in", detail, headers={"WWW-Authenticate": "Bearer"})


def allowed_hosts(settings: Settings) -> set[str]:
    """Every Host header under which this service answers."""
    names = {"127.0.0.1", "localhost", "[::1]"}
    if settings.host not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        names.add(f"[{settings.host}]" if ":" in settings.host.strip("[]") else settings.host.lower())
    hosts = {f"{name}:{settings.port}" for name in names}
    hosts |= {name.lower() for name in settings.allowed_hosts if ":" in name}
    return hosts | (names if settings.port == 80 else set())


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _is_public(path: str) -> bool:
    return path in PUBLIC_PATHS or path.startswith(PUBLIC_PREFIXES)


def _is_same_origin(headers: Headers, *, is_bearer: bool) -> bool:
    """The rules of Go's CrossOriginProtection; a client that is no browser proves itself by its token."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    if origin is not None:
        return origin.partition("://")[2].lower() == headers.get("host", "").lower()
    return is_bearer


def _body_refusal(headers: Headers) -> Response | None:
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > BODY_BYTES:
        return problem(413, "Too large", TOO_LARGE)
    has_body = int(length) > 0 or "transfer-encoding" in headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if has_body and kind != "application/json":
        return problem(415, "Unsupported media type", "Content-Type: application/json is expected")
    return None


def _limited(receive: Receive, headers: Headers) -> Receive:
    """Counts what really arrives: a client may lie about the length or not tell it."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > BODY_BYTES:
            raise HTTPException(413, TOO_LARGE)
        return message

    return counted if "transfer-encoding" in headers else receive


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


def _login_page(message: str, *, status: int = 401) -> Response:
    return HTMLResponse(
        LOGIN_PAGE.format(message=html.escape(message)), status, headers={"Cache-Control": "no-store"}
    )


def _too_many_logins() -> Response:
    return problem(429, "Too many logins", "wait a minute and try again", headers={"Retry-After": "60"})
