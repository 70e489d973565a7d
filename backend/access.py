"""Who may use the service: the operator's token, one-time links made from it, and the cookie that follows.

A link carries its time and a signature instead of the token, so it may appear in a terminal's scrollback;
it works once, because its use leaves a file behind. The cookie follows from the token: a new token ends it.
"""

import contextlib
import hmac
import os
import re
import secrets
import time
from pathlib import Path

from backend.errors import Unavailable
from backend.instance import service_url
from backend.settings import Settings

LINK_SECONDS = 600
"""How long a login link works."""

_LINK = re.compile(r"(\d{10})\.([\w-]{16})\.([0-9a-f]{64})")


def operator_token(settings: Settings) -> str:
    """GRPOLAB_TOKEN, or the token that the state directory keeps; the first call makes it."""
    if settings.grpolab_token:
        return settings.grpolab_token
    path = settings.state / "token"
    if not path.exists():
        draft = path.with_name(f".token.{secrets.token_hex(8)}")
        _write_private(draft, secrets.token_urlsafe(32))
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)  # complete or not there at all
        draft.unlink()
    token = path.read_text().strip()
    if not token:
        raise Unavailable(f"{path} is empty: remove it, and a new token is made at the next start")
    return token


def login_link(settings: Settings) -> str:
    """A fresh link that opens the service in a browser, once, within ten minutes."""
    moment = f"{int(time.time()) + LINK_SECONDS}.{secrets.token_urlsafe(12)}"
    return f"{service_url(settings)}/?token={moment}.{_signature(settings, 'link', moment)}"


def redeem_link(settings: Settings, ticket: str) -> bool:
    """Whether this link's ticket is ours, in time and unused; from now on it is used."""
    match = _LINK.fullmatch(ticket)
    if match is None or int(match[1]) < time.time():
        return False
    if not hmac.compare_digest(_signature(settings, "link", f"{match[1]}.{match[2]}"), match[3]):
        return False
    used = settings.run_dir / "used-links"
    used.mkdir(mode=0o700, parents=True, exist_ok=True)
    _forget_expired(used)
    try:
        _write_private(used / f"{match[1]}.{match[2]}", "")
    except FileExistsError:
        return False
    return True


def _forget_expired(used: Path) -> None:
    for path in used.iterdir():
        if int(path.name.partition(".")[0]) < time.time():
            path.unlink(missing_ok=True)


def is_token(settings: Settings, given: str) -> bool:
    """Whether this is the operator's token; takes the same time for every wrong one."""
    return hmac.compare_digest(given.encode(), operator_token(settings).encode())


def cookie_name(settings: Settings) -> str:
    """Browsers send a cookie to every port of a host, so the port is part of its name."""
    return f"grpolab_{settings.port}"


def cookie_value(settings: Settings) -> str:
    """What the cookie of a logged-in browser holds."""
    return _signature(settings, "cookie", "1")


def is_cookie(settings: Settings, given: str) -> bool:
    """Whether a browser with this cookie has logged in."""
    return hmac.compare_digest(given.encode(), cookie_value(settings).encode())


def _signature(settings: Settings, purpose: str, content: str) -> str:
    return hmac.new(operator_token(settings).encode(), f"{purpose}:{content}".encode(), "sha256").hexdigest()


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
