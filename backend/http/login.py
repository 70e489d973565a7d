"""Login pages: a one-time link, or a token entered in a form, is exchanged for a cookie.

A link that another site refers to must be confirmed by the user, because otherwise images or frames on any
page of the web could use it up, or use up the attempts of an address. An operator must confirm the link of a
viewer.
"""

import html
import ipaddress
from http import HTTPStatus
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Receive, Scope

from backend.base.errors import GrpoLabError
from backend.base.settings import Settings
from backend.http.auth.permissions import Role
from backend.http.auth.sessions import BrowserSessions
from backend.http.auth.tokens import (
    COOKIE_SECONDS,
    Login,
    cookie_name,
    link_role,
    new_cookie,
    redeem_link,
    return_link,
    token_role,
)
from backend.http.limits import Buckets, read_body, too_many
from backend.http.problem_details import problem

LOGINS_PER_MINUTE = 5
MAX_FORM_BYTES = 4096

USED_LINK_MESSAGE = "This link has already been used, or has expired: links are valid for ten minutes."

HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>GRPO Lab: log in</title>
<link rel="icon" href="/static/favicon.svg" type="image/svg+xml">
<script src="/static/src/first_paint.js"></script>
<link rel="stylesheet" href="/static/styles/base.css">
<link rel="stylesheet" href="/static/styles/components.css">
<style>.login { display: grid; gap: var(--s4); max-width: 400px; margin: 12vh auto; padding: var(--s6) }
.login form { display: grid; gap: var(--s2) }
.login .field, .login .button { width: 100%; justify-content: center }
@media (max-width: 440px) { .login { margin: 0; min-height: 100vh; border: 0; align-content: start } }</style>
<main class="login card">
<div class="brand"><img src="/static/favicon.svg" alt="" width="20" height="20"> GRPO Lab</div>
<h1>{title}</h1>
<p role="status">{message}</p>
"""

LOGIN_FORM = """<form method="post" action="/login"><label for="token">Token</label>
<input class="field" id="token" name="token" type="password" autocomplete="current-password" required
  autofocus>
<button class="button button-primary">Log in</button></form>
<p class="quiet">The operator's token is <code>GRPOLAB_TOKEN</code>, else in the file <code>token</code>
of the state directory; a viewer's is <code>GRPOLAB_VIEWER_TOKEN</code>, else in
<code>viewer-token</code>.</p>
<p class="quiet">Or open a link: on the machine where the service runs, <code>make link</code> or
<code>grpolab link</code> prints one, which works once, for ten minutes.</p>
</main>
</html>
"""

QUESTION_FORM = """<form method="post" action="/login"><input name="ticket" type="hidden" value="{ticket}">
<input name="path" type="hidden" value="{path}"><button class="button button-primary">{yes}</button></form>
<a class="button" href="{path}">{no}</a>
</main>
</html>
"""


class LoginPages:
    """Login links, the login form, and the cookies that they create."""

    def __init__(self, settings: Settings, sessions: BrowserSessions) -> None:
        self._settings = settings
        self._sessions = sessions
        self._links = Buckets(per_second=LOGINS_PER_MINUTE / 60, burst=LOGINS_PER_MINUTE)
        self._tokens = Buckets(per_second=LOGINS_PER_MINUTE / 60, burst=LOGINS_PER_MINUTE)

    async def swap_link(self, scope: Scope, ticket: str, *, role: Role | None) -> Response:
        """Exchange a one-time link for a cookie and redirect to an address without the link.

        `role` is the role with which the browser is already logged in.
        """
        headers, path = Headers(scope=scope), _path_without_ticket(scope)
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            if headers.get("sec-fetch-dest") != "document":
                return problem(403, "Forbidden", "cross-origin requests are not allowed")
            return _confirmation_page(
                "Another site sent you to this login link.",
                ticket,
                path,
                yes="Log in",
                no="Continue without it",
            )
        linked_role = link_role(self._settings, ticket)
        if linked_role is Role.VIEWER and role is Role.OPERATOR:
            return _confirmation_page(
                "You are logged in as the operator, and this link is for viewers, who can read everything "
                "and change nothing. Using it logs the operator out of this browser.",
                ticket,
                path,
                yes="Become a viewer",
                no="Stay the operator",
            )
        if role is not None and linked_role is None:
            return RedirectResponse(path, HTTPStatus.SEE_OTHER)
        return await self._redeem(scope, ticket, path)

    async def answer(self, scope: Scope, receive: Receive) -> Response:
        """Show the login form, or process it."""
        if scope["method"] != "POST":
            return login_page("Please log in.", status=200)
        body = await read_body(receive, limit=MAX_FORM_BYTES)
        fields = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
        if "ticket" in fields:
            return await self._redeem(scope, fields["ticket"], _local_address(fields.get("path", "/")))
        address = client_address(scope)
        if wait_seconds := self._tokens.wait(address):
            return too_many("failed logins", wait_seconds)
        role = token_role(self._settings, fields.get("token", "").strip())
        if role is None:
            self._tokens.take_token(address)
            return login_page("That is neither the operator's token nor a viewer's.")
        return await self._log_in(scope, "/", role)

    async def _redeem(self, scope: Scope, ticket: str, path: str) -> Response:
        """Redeem a link; only invalid links count towards the attempts of an address."""
        role = redeem_link(self._settings, ticket)
        if role is None:
            wait_seconds = self._links.take_token(client_address(scope))
            return too_many("failed logins", wait_seconds) if wait_seconds else login_page(USED_LINK_MESSAGE)
        try:
            return await self._log_in(scope, path, role)
        except GrpoLabError:
            return_link(self._settings, ticket)
            raise

    async def _log_in(self, scope: Scope, path: str, role: Role) -> Response:
        cookie, login = new_cookie(self._settings, role)
        previous_login: Login | None = scope["state"]["login"]
        await self._sessions.start(
            login, Headers(scope=scope).get("user-agent", ""), replaced_login=previous_login
        )
        response = RedirectResponse(path, HTTPStatus.SEE_OTHER)
        response.set_cookie(
            cookie_name(self._settings),
            cookie,
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=scope.get("scheme") == "https",
        )
        return response


def _path_without_ticket(scope: Scope) -> str:
    query = parse_qs(scope["query_string"].decode("latin-1"))
    query_without_ticket = urlencode(
        {key: value for key, value in query.items() if key != "token"}, doseq=True
    )
    return _local_address(scope["path"]) + (f"?{query_without_ticket}" if query_without_ticket else "")


def _local_address(path: str) -> str:
    """Return an address on this host; browsers treat backslashes as slashes and ignore line breaks."""
    return "/" + "".join(character for character in path if character > " " and character != "\x7f").lstrip(
        "/\\"
    )


def client_address(scope: Scope) -> str:
    """Return the client's address; for IPv6 only the network, because the client can choose the rest."""
    client = scope.get("client")
    host = str(client[0]) if client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host


def login_page(message: str, *, status: int = 401) -> Response:
    """Return the login form with a message."""
    return _page("Log in", message, LOGIN_FORM, status)


def _confirmation_page(message: str, ticket: str, path: str, *, yes: str, no: str) -> Response:
    """Return the page that asks for confirmation before a link is used."""
    values = {"ticket": ticket, "path": path, "yes": yes, "no": no}
    escaped_values = {name: html.escape(value) for name, value in values.items()}
    return _page("Use this link?", message, QUESTION_FORM.format(**escaped_values), HTTPStatus.OK)


def _page(title: str, message: str, form: str, status: int) -> Response:
    head = HEAD.replace("{title}", title).replace("{message}", html.escape(message))
    # With no-referrer, browsers hide the origin of a form, which then counts as cross-origin.
    headers = {"Cache-Control": "no-store", "Referrer-Policy": "same-origin"}
    return HTMLResponse(head + form, status, headers=headers)
