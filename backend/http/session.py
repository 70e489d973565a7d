"""HTTP routes of sessions: the role of the caller, and the logged-in browsers."""

from typing import Any

from fastapi import Request

from backend.base.documented import Documented
from backend.base.errors import Conflict, NotFound
from backend.http.auth.permissions import Role
from backend.http.auth.sessions import BrowserSessions
from backend.http.auth.tokens import cookie_name
from backend.http.dependencies import SettingsOf
from backend.http.paging import iso_time
from backend.http.responses import Json
from backend.http.routing import Router
from backend.storage.models import BrowserSession

router = Router(prefix="/api/v1", tags=["session"])


class Session(Documented):
    """The role and session of the caller."""

    role: Role
    session: str | None
    """Id of the browser's session; null for a client that authenticates with a token."""


class SessionItem(Documented):
    """A logged-in browser."""

    id: str
    role: Role
    user_agent: str
    """User-Agent header of the browser."""
    created_at: str
    seen_at: str
    """Time of the browser's last request, accurate to a minute."""
    ends_at: str
    is_current: bool
    """Whether the request was made in this session."""


class SessionPage(Documented):
    """All logged-in browsers."""

    items: list[SessionItem]
    next: None


class Ended(Documented):
    """The session that was ended."""

    ended: str


@router.get("/session", response_model=Session)
def session(request: Request) -> Json:
    """Return the role of the token or cookie. A viewer can read everything, but change nothing."""
    return Json({"role": request.state.role, "session": request.state.session or None})


@router.delete("/session", response_model=Ended)
def log_out(request: Request, settings: SettingsOf) -> Json:
    """Log this browser out and invalidate its cookie."""
    own_id = request.state.session
    if not own_id:
        raise Conflict("this client sent a token and no cookie: it has no session to end")
    _sessions(request).end(own_id)
    answer = Json({"ended": own_id})
    answer.delete_cookie(cookie_name(settings), httponly=True, samesite="strict")
    return answer


@router.get("/sessions", response_model=SessionPage)
def list_all(request: Request) -> Json:
    """List the logged-in browsers: all for an operator, but only its own for a viewer."""
    own_id = request.state.session
    rows = _sessions(request).list_open(request.state.role, own_id)
    return Json({"items": [_session_json(row, own_id) for row in rows], "next": None})


@router.delete("/sessions/{session_id}", response_model=Ended)
def end(session_id: str, request: Request) -> Json:
    """Log a browser out; a viewer may only log out its own session."""
    is_allowed = request.state.role is Role.OPERATOR or session_id == request.state.session
    if not is_allowed or not _sessions(request).end(session_id):
        raise NotFound("there is no such session that you may end")
    return Json({"ended": session_id})


def _sessions(request: Request) -> BrowserSessions:
    browser_sessions: BrowserSessions = request.app.state.browser_sessions
    return browser_sessions


def _session_json(row: BrowserSession, own_id: str) -> dict[str, Any]:
    return {
        "id": row.id,
        "role": row.role,
        "user_agent": row.user_agent,
        "created_at": iso_time(row.created_at),
        "seen_at": iso_time(row.seen_at),
        "ends_at": iso_time(row.ends_at),
        "is_current": row.id == own_id,
    }
