"""How a browser logs in: a one-time link, or a token typed into a form; both become a cookie."""

import html
import ipaddress
from http import HTTPStatus
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Receive, Scope

from backend.access import (
    COOKIE_SECONDS,
    cookie_name,
    cookie_value,
    redeem_link,
    role_of_token,
)
from backend.limits import Buckets, read_body, too_many
from backend.permissions import Role
from backend.settings import Settings

LOGINS_PER_MINUTE = 5
FORM_BYTES = 4096

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
Or enter a token: the operator's (<code>GRPOLAB_TOKEN</code>, else the file <code>token</code> in the state
directory) or a viewer's (<code>GRPOLAB_VIEWER_TOKEN</code>, else <code>viewer-token</code>).</p>
<form method="post" action="/login"><label>Token
<input name="token" type="password" autocomplete="current-password" required autofocus></label>
<button>Log in</button></form>
</html>
"""


class Login:
    """Links, the form, and the cookie that they give."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tries = Buckets(per_second=LOGINS_PER_MINUTE / 60, burst=LOGINS_PER_MINUTE)

    def swap_link(self, scope: Scope, ticket: str, *, role: Role | None) -> Response:
        """A one-time link becomes a cookie and leaves the address bar; `role` has logged in before."""
        if role is None and (wait := self._wait(scope)):
            return too_many("logins", wait)
        as_whom = redeem_link(self._settings, ticket)
        if as_whom is None and role is None:
            return login_page("This link has been used already, or its ten minutes are over.")
        query = parse_qs(scope["query_string"].decode("latin-1"))
        rest = urlencode({key: value for key, value in query.items() if key != "token"}, doseq=True)
        path = "/" + scope["path"].lstrip("/\\")  # never an address of another host
        return self._redirect(scope, path + (f"?{rest}" if rest else ""), as_whom)

    async def answer(self, scope: Scope, receive: Receive) -> Response:
        """The address of the form."""
        if scope["method"] != "POST":
            return login_page("Please log in.", status=200)
        if wait := self._wait(scope):
            return too_many("logins", wait)
        body = await read_body(receive, Headers(scope=scope), most=FORM_BYTES)
        token = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        role = role_of_token(self._settings, token.strip())
        if role is None:
            return login_page("That is neither the operator's token nor a viewer's.")
        return self._redirect(scope, "/", role)

    def _redirect(self, scope: Scope, address: str, role: Role | None) -> Response:
        response = RedirectResponse(address, HTTPStatus.SEE_OTHER)
        if role is not None:
            response.set_cookie(
                cookie_name(self._settings),
                cookie_value(self._settings, role),
                max_age=COOKIE_SECONDS,
                httponly=True,
                samesite="strict",
                secure=scope.get("scheme") == "https",
            )
        return response

    def _wait(self, scope: Scope) -> float:
        """Seconds until the address that asks may try again; 0: it may now."""
        return self._tries.take(address_of(scope))


def address_of(scope: Scope) -> str:
    """Who asks, as an address; of IPv6 its first half, for the second is everybody's own choice."""
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
    """The form, with what is the matter."""
    return HTMLResponse(
        LOGIN_PAGE.format(message=html.escape(message)),
        status,
        # Under no-referrer a browser hides the origin of a form, which then counts as another site's.
        headers={"Cache-Control": "no-store", "Referrer-Policy": "same-origin"},
    )
