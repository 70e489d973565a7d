"""Identity of a caller: tokens of operator, viewer and writers, one-time login links, and the login cookie.

A link carries its time and a signature instead of the token, so it may appear in a terminal's scrollback. It
works once, because its use leaves a file behind. Links and cookies are signed with their role's token, so a
new token ends them. A cookie also belongs to a session, which can be ended separately; see sessions.py.

A writer's token holds the writer's name, signed with a key. Everything that a token pushes belongs to that
name. The key is not a token and never leaves this machine.
"""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from starlette.requests import cookie_parser

from backend.base.durable_files import make_directory, sync
from backend.base.errors import FieldError, InvalidRequest, Unavailable
from backend.base.settings import Settings, service_url
from backend.http.auth.permissions import PEOPLE, Role

LINK_SECONDS = 600
"""Lifetime of a login link, in seconds."""

COOKIE_SECONDS = 30 * 86400
"""Lifetime of a login cookie, in seconds."""

_LINK = re.compile(r"([0-9]{10})\.([A-Za-z0-9_-]{16})\.([0-9a-f]{64})")
_COOKIE = re.compile(r"([0-9]{10})\.([A-Za-z0-9_-]{43})\.([0-9a-f]{64})")

_WRITER_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WRITER_TOKEN = re.compile(r"writer\.([A-Za-z0-9_-]{1,64})\.([0-9a-f]{64})")

_SECRETS = {
    Role.OPERATOR: ("grpolab_token", "token"),
    Role.VIEWER: ("grpolab_viewer_token", "viewer-token"),
    Role.WRITER: ("grpolab_writer_key", "writer-key"),
}
"""The setting that holds each role's secret, and the file that holds it if the setting is empty."""


def read_or_create_token(settings: Settings, role: Role) -> str:
    """Return a role's token, or the key that signs writers' tokens; the first call creates it."""
    name, file = _SECRETS[role]
    if chosen := str(getattr(settings, name)):
        return chosen
    path = settings.state_dir.expanduser() / file
    try:
        about = path.stat()
    except FileNotFoundError:
        _create(path)
        about = path.stat()
    token = _read_secret(path, (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns))
    if not token:
        raise Unavailable(f"{path} is empty: delete it, and the next start creates a new token")
    return token


@lru_cache(maxsize=16)
def _read_secret(path: Path, _version: tuple[int, ...]) -> str:
    """Return a file's text, which is cached until the file changes because every request needs it."""
    return path.read_text().strip()


def _create(path: Path) -> None:
    """Write a new secret unless another process has written one."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    _write_private(draft, secrets.token_urlsafe(32))
    with contextlib.suppress(FileExistsError):
        path.hardlink_to(draft)  # complete or not there at all
    draft.unlink()
    sync(path.parent)


def fingerprint(settings: Settings) -> str:
    """Return a fingerprint of the tokens, which changes whenever a token changes."""
    tokens = "\0".join(read_or_create_token(settings, role) for role in Role)
    return hashlib.sha256(tokens.encode()).hexdigest()


def token_role(settings: Settings, token: str) -> Role | None:
    """Return the role of a token, None if it is wrong; takes the same time for every wrong token."""
    matches = {
        r: hmac.compare_digest(token.encode(), read_or_create_token(settings, r).encode()) for r in PEOPLE
    }
    return next((role for role, is_match in matches.items() if is_match), None)


def writer_token(settings: Settings, name: str) -> str:
    """Return the token of a writer. Raises InvalidRequest if the name is not valid."""
    if not _WRITER_NAME.fullmatch(name):
        raise InvalidRequest([FieldError("writer", "expected 1 to 64 letters, digits, _ and -")])
    return f"writer.{name}.{_signature(settings, Role.WRITER, f'token:{name}')}"


def token_writer(settings: Settings, token: str) -> str | None:
    """Return the name of the writer with this token; None for any other text."""
    match = _WRITER_TOKEN.fullmatch(token)
    if match is None or not hmac.compare_digest(token, writer_token(settings, match[1])):
        return None
    return match[1]


def login_link(settings: Settings, role: Role = Role.OPERATOR) -> str:
    """Create a link that opens the service in a browser once, within ten minutes."""
    moment = f"{int(time.time()) + LINK_SECONDS}.{secrets.token_urlsafe(12)}"
    return f"{service_url(settings)}/?token={moment}.{_signature(settings, role, f'link:{moment}')}"


def link_role(settings: Settings, ticket: str) -> Role | None:
    """Return the role of a valid login link, used or not; None for any other text."""
    match = _LINK.fullmatch(ticket)
    if match is None or int(match[1]) < time.time():
        return None
    return _signer(settings, f"link:{match[1]}.{match[2]}", match[3])


def redeem_link(settings: Settings, ticket: str) -> Role | None:
    """Mark a valid, unused login link as used and return its role; None for any other text."""
    role = link_role(settings, ticket)
    if role is None:
        return None
    used = _used_links(settings)
    make_directory(used, mode=0o700)
    _forget_expired(used)
    try:
        _write_private(used / ticket.rpartition(".")[0], "")
        sync(used)  # a power cut does not make it work again
    except FileExistsError:
        return None
    return role


def return_link(settings: Settings, ticket: str) -> None:
    """Make a link usable again that was redeemed but opened no session."""
    (_used_links(settings) / ticket.rpartition(".")[0]).unlink(missing_ok=True)


def _used_links(settings: Settings) -> Path:
    return settings.run_dir / "used-links"


def _forget_expired(used: Path) -> None:
    for path in used.iterdir():
        if int(path.name.partition(".")[0]) < time.time():
            path.unlink(missing_ok=True)


def cookie_name(settings: Settings) -> str:
    """Return the cookie's name; it contains the port because a host's cookies are sent to all its ports."""
    return f"grpolab_{settings.port}"


class Login(NamedTuple):
    """A browser's session, as its cookie describes it."""

    id: str
    """SHA-256 of the cookie's secret; key of the session's row."""
    role: Role
    ends_at: int


def new_cookie(settings: Settings, role: Role) -> tuple[str, Login]:
    """Create the cookie of a browser that logs in, with expiry, secret and signature, and its login."""
    content = f"{int(time.time()) + COOKIE_SECONDS}.{secrets.token_urlsafe(32)}"
    cookie = f"{content}.{_signature(settings, role, f'cookie:{content}')}"
    return cookie, Login(_digest(content), role, int(content[:10]))


def parse_cookie(settings: Settings, cookie: str) -> Login | None:
    """Return the session of a valid login cookie, ended or not; None for any other text."""
    match = _COOKIE.fullmatch(cookie)
    if match is None or int(match[1]) < time.time():
        return None
    content = f"{match[1]}.{match[2]}"
    role = _signer(settings, f"cookie:{content}", match[3])
    return Login(_digest(content), role, int(match[1])) if role else None


def parse_cookies(settings: Settings, headers: list[str]) -> list[Login]:
    """Return the logins in a request's `Cookie` headers, stronger roles first.

    The headers may also hold cookies of other programs on this host, in any format and even with this name.
    """
    name = cookie_name(settings)
    values = (cookie_parser(cookie).get(name) for header in headers for cookie in header.split(";"))
    logins = [login for value in values if value and (login := parse_cookie(settings, value))]
    return sorted(logins, key=lambda login: login.role is not Role.OPERATOR)


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def _signer(settings: Settings, content: str, signature: str) -> Role | None:
    matches = {role: hmac.compare_digest(_signature(settings, role, content), signature) for role in PEOPLE}
    return next((role for role, is_match in matches.items() if is_match), None)


def _signature(settings: Settings, role: Role, content: str) -> str:
    return hmac.new(
        read_or_create_token(settings, role).encode(), f"{role}:{content}".encode(), "sha256"
    ).hexdigest()


def _write_private(path: Path, text: str) -> None:
    make_directory(path.parent, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
