"""Browser sessions: a request needs an open session in addition to its signed cookie.

Each process caches sessions for a few seconds, so that a page with forty requests needs only one query. While
the database is unavailable, a signed cookie that has not expired is accepted unless this process knows that
its session has ended.
"""

import logging
import time
from functools import partial
from typing import Any, NamedTuple

import anyio.to_thread
from sqlalchemy import delete, or_, select, update
from sqlalchemy.exc import SQLAlchemyError

from backend.base.errors import Unavailable
from backend.base.redaction import redact
from backend.base.text import clean_text
from backend.http.auth.permissions import Role
from backend.http.auth.tokens import Login
from backend.storage.engine import Sessions, db_now, open_read_session
from backend.storage.models import BrowserSession

logger = logging.getLogger(__name__)

CACHE_SECONDS = 5.0
"""Seconds for which a session is cached; a session ended by another process stays open that long."""

LOOK_SECONDS = 2.0
"""Maximum number of seconds that a request waits for its session to be looked up."""

SEEN_SECONDS = 60.0
"""Resolution with which the last request of a session is recorded, in seconds."""

RETENTION_SECONDS = 30 * 86400.0
"""Seconds for which the row of an ended session is kept."""

MAX_REMEMBERED = 10_000
MAX_AGENT_CHARACTERS = 300


class _CachedSession(NamedTuple):
    is_open: bool
    cached_at: float


class BrowserSessions:
    """The browser sessions of an installation."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._remembered: dict[str, _CachedSession] = {}

    async def open_one(self, logins: list[Login]) -> Login | None:
        """Return the first login with an open session, or None."""
        for login in logins:
            if await self._is_open(login.id):
                return login
        return None

    async def _is_open(self, session_id: str) -> bool:
        cached_session = self._remembered.get(session_id)
        if cached_session and (
            not cached_session.is_open or time.monotonic() - cached_session.cached_at < CACHE_SECONDS
        ):
            return cached_session.is_open
        with anyio.move_on_after(LOOK_SECONDS):
            await anyio.to_thread.run_sync(self._look_up, session_id, abandon_on_cancel=True)
        if (
            self._remembered.get(session_id) is cached_session
        ):  # no response: retry soon, but not on each request
            self._remember(session_id, is_open=True)
        return self._remembered[session_id].is_open

    def _look_up(self, session_id: str) -> None:
        try:
            with open_read_session(self._sessions) as session:
                query = select(BrowserSession.ended_at, BrowserSession.seen_at < db_now() - SEEN_SECONDS)
                row = session.execute(query.where(BrowserSession.id == session_id)).one_or_none()
            self._remember(session_id, is_open=row is not None and row[0] is None)
            if row is not None and row[1]:
                self._change(session_id, seen_at=db_now())
        except SQLAlchemyError:
            logger.warning("cannot check the session: the database does not answer", exc_info=True)

    def _remember(self, session_id: str, *, is_open: bool) -> None:
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[session_id] = _CachedSession(is_open, time.monotonic())

    def _change(self, session_id: str, **values: Any) -> None:
        with self._sessions.begin() as session:
            session.execute(update(BrowserSession).where(BrowserSession.id == session_id).values(**values))

    async def start(self, login: Login, user_agent: str, *, replaced_login: Login | None) -> None:
        """Store a new session, which may replace another session of the same browser; raise Unavailable."""
        try:
            await anyio.to_thread.run_sync(partial(self._insert_row, login, user_agent, replaced_login))
        except SQLAlchemyError as error:
            logger.warning("cannot log in anyone: %s", error)
            raise Unavailable("nobody can log in while the database is unavailable") from None
        self._remember(login.id, is_open=True)
        if replaced_login:
            self._remember(replaced_login.id, is_open=False)

    def _insert_row(self, login: Login, user_agent: str, replaced_login: Login | None) -> None:
        agent = redact(clean_text(user_agent))[:MAX_AGENT_CHARACTERS]
        is_over = or_(
            BrowserSession.ends_at < db_now(), BrowserSession.ended_at < db_now() - RETENTION_SECONDS
        )
        with self._sessions.begin() as session:
            session.execute(delete(BrowserSession).where(is_over))
            session.add(
                BrowserSession(id=login.id, role=login.role, user_agent=agent, ends_at=float(login.ends_at))
            )
            if replaced_login:
                is_replaced = BrowserSession.id == replaced_login.id
                session.execute(update(BrowserSession).where(is_replaced).values(ended_at=db_now()))

    def list_open(self, role: Role, own_id: str) -> list[BrowserSession]:
        """Return the open sessions, last seen first: all for an operator, but only its own for a viewer."""
        query = select(BrowserSession).where(
            BrowserSession.ended_at.is_(None), BrowserSession.ends_at > db_now()
        )
        if role is not Role.OPERATOR:
            query = query.where(BrowserSession.id == own_id)
        with open_read_session(self._sessions) as session:
            return list(session.scalars(query.order_by(BrowserSession.seen_at.desc(), BrowserSession.id)))

    def end(self, session_id: str) -> bool:
        """End a session; return whether it was open."""
        is_open = (BrowserSession.id == session_id, BrowserSession.ended_at.is_(None))
        with self._sessions.begin() as session:
            open_id = session.scalar(select(BrowserSession.id).where(*is_open))
            session.execute(update(BrowserSession).where(*is_open).values(ended_at=db_now()))
        if open_id:
            self._remember(session_id, is_open=False)
        return bool(open_id)
