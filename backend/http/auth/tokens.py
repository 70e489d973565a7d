"""Authentication: tokens of operator, viewer and writers, one-time login links, and login cookies.

A link contains its time and a signature instead of the token, so it may be visible in a terminal. It works
once, because using it creates a file. Links and cookies are signed with the token of their role, so a new
token invalidates them. A cookie also belongs to a session, which can be ended separately; see sessions.py.

The token of a writer contains the writer's name, signed with a key. Everything that is pushed with a token
belongs to that name. The key is not a token and never leaves this machine.
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

_LINK_PATTERN = re.compile(r"([0-9]{10})\.([A-Za-z0-9_-]{16})\.([0-9a-f]{64})")
_COOKIE_PATTERN = re.compile(r"([0-9]{10})\.([A-Za-z0-9_-]{43})\.([0-9a-f]{64})")

_WRITER_NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WRITER_TOKEN_PATTERN = re.compile(r"writer\.([A-Za-z0-9_-]{1,64})\.([0-9a-f]{64})")

_SECRETS = {
    Role.OPERATOR: ("grpolab_token", "token"),
    Role.VIEWER: ("grpolab_viewer_token", "viewer-token"),
    Role.WRITER: ("grpolab_writer_key", "writer-key"),
}
"""Setting that contains the secret of each role, and the file that is used if the setting is empty."""


def read_or_create_token(settings: Settings, role: Role) -> str:
    """Return the token of a role, or the key that signs the tokens of writers; create it if necessary."""
    name, file = _SECRETS[role]
    if configured_token := str(getattr(settings, name)):
        return configured_token
    path = settings.state_dir.expanduser() / file
    try:
        file_status = path.stat()
    except FileNotFoundError:
        _create(path)
        file_status = path.stat()
    token = _read_secret(
        path, (file_status.st_ino, file_status.st_size, file_status.st_mtime_ns, file_status.st_ctime_ns)
    )
    if not token:
        raise Unavailable(f"{path} is empty: delete it, and the next start creates a new token")
    return token


@lru_cache(maxsize=16)
def _read_secret(path: Path, _version: tuple[int, ...]) -> str:
    """Return the text of a file, cached until the file changes because every request needs it."""
    return path.read_text().strip()


def _create(path: Path) -> None:
    """Write a new secret, unless another process has already written one."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    _write_private(draft, secrets.token_urlsafe(32))
    with contextlib.suppress(FileExistsError):
        path.hardlink_to(draft)  # either complete or missing
    draft.unlink()
    sync(path.parent)


def fingerprint(settings: Settings) -> str:
    """Return a fingerprint of the tokens, which changes with any of them."""
    tokens = "\0".join(read_or_create_token(settings, role) for role in Role)
    return hashlib.sha256(tokens.encode()).hexdigest()


def token_role(settings: Settings, token: str) -> Role | None:
    """Return the role of a token, or None; takes the same time for every invalid token."""
    matches = {
        person: hmac.compare_digest(token.encode(), read_or_create_token(settings, person).encode())
        for person in PEOPLE
    }
    return next((role for role, is_match in matches.items() if is_match), None)


def writer_token(settings: Settings, name: str) -> str:
    """Return the token of a writer; raise InvalidRequest if the name is invalid."""
    if not _WRITER_NAME_PATTERN.fullmatch(name):
        raise InvalidRequest([FieldError("writer", "expected 1 to 64 letters, digits, _ and -")])
    return f"writer.{name}.{_signature(settings, Role.WRITER, f'token:{name}')}"


def token_writer(settings: Settings, token: str) -> str | None:
    """Return the name of the writer with this token; None for any other text."""
    match = _WRITER_TOKEN_PATTERN.fullmatch(token)
    if match is None or not hmac.compare_digest(token, writer_token(settings, match[1])):
        return None
    return match[1]


def login_link(settings: Settings, role: Role = Role.OPERATOR) -> str:
    """Create a link that opens the service in a browser once, within ten minutes."""
    content = f"{int(time.time()) + LINK_SECONDS}.{secrets.token_urlsafe(12)}"
    return f"{service_url(settings)}/?token={content}.{_signature(settings, role, f'link:{content}')}"


def link_role(settings: Settings, ticket: str) -> Role | None:
    """Return the role of a valid login link, used or not; None for any other text."""
    match = _LINK_PATTERN.fullmatch(ticket)
    if match is None or int(match[1]) < time.time():
        return None
    return _signer(settings, f"link:{match[1]}.{match[2]}", match[3])


def redeem_link(settings: Settings, ticket: str) -> Role | None:
    """Mark a valid, unused login link as used and return its role; return None for any other text."""
    role = link_role(settings, ticket)
    if role is None:
        return None
    used_links = _used_links(settings)
    make_directory(used_links, mode=0o700)
    _forget_expired(used_links)
    try:
        _write_private(used_links / ticket.rpartition(".")[0], "")
        sync(used_links)  # the link stays used after a power failure
    except FileExistsError:
        return None
    return role


def return_link(settings: Settings, ticket: str) -> None:
    """Make a redeemed link usable again, because no session could be opened."""
    (_used_links(settings) / ticket.rpartition(".")[0]).unlink(missing_ok=True)


def _used_links(settings: Settings) -> Path:
    return settings.run_dir / "used-links"


def _forget_expired(used_tickets: Path) -> None:
    for path in used_tickets.iterdir():
        if int(path.name.partition(".")[0]) < time.time():
            path.unlink(missing_ok=True)


def cookie_name(settings: Settings) -> str:
    """Return the name of the cookie, with the port because cookies are sent to all ports of a host."""
    return f"grpolab_{settings.port}"


class Login(NamedTuple):
    """The login of a browser, as stored in its cookie."""

    id: str
    """SHA-256 of the cookie's secret, which is the key of the session's row."""
    role: Role
    ends_at: int


def new_cookie(settings: Settings, role: Role) -> tuple[str, Login]:
    """Create a login cookie with expiry, secret and signature, and return it with its login."""
    content = f"{int(time.time()) + COOKIE_SECONDS}.{secrets.token_urlsafe(32)}"
    cookie = f"{content}.{_signature(settings, role, f'cookie:{content}')}"
    return cookie, Login(_digest(content), role, int(content[:10]))


def parse_cookie(settings: Settings, cookie: str) -> Login | None:
    """Return the login of a valid cookie, ended or not; None for any other text."""
    match = _COOKIE_PATTERN.fullmatch(cookie)
    if match is None or int(match[1]) < time.time():
        return None
    content = f"{match[1]}.{match[2]}"
    role = _signer(settings, f"cookie:{content}", match[3])
    return Login(_digest(content), role, int(match[1])) if role else None


def parse_cookies(settings: Settings, headers: list[str]) -> list[Login]:
    """Return the logins in the `Cookie` headers of a request, stronger roles first.

    The headers may also contain cookies of other programs on this host, in any format and even with the same
    name.
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
