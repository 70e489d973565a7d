"""FastAPI dependencies: settings, a read-only session, and a session that commits before the response.

Sessions are context managers that `backend.http.routing.Route` enters.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from backend.base.settings import Settings
from backend.storage.engine import Sessions, interrupter, open_read_session
from backend.storage.interruption import interruptible


@dataclass(frozen=True, slots=True)
class Lab:
    """The shared objects of the application, stored in `app.state.lab`."""

    settings: Settings
    engine: Engine
    sessions: Sessions


def get_lab(request: Request) -> Lab:
    """Return the shared objects of the application."""
    lab: Lab = request.app.state.lab
    return lab


async def _lab_dependency(
    request: Request,
) -> Lab:  # async, because it does not block and so needs no thread
    return get_lab(request)


async def _settings_dependency(request: Request) -> Settings:
    return get_lab(request).settings


@contextmanager
def _open_read_session(sessions: Sessions) -> Iterator[Session]:
    with open_read_session(sessions) as session, interruptible(interrupter(session)):
        yield session


async def _read_session(request: Request) -> AbstractContextManager[Session]:
    return _open_read_session(get_lab(request).sessions)


async def _write_session(request: Request) -> AbstractContextManager[Session]:
    return get_lab(request).sessions.begin()


LabOf = Annotated[Lab, Depends(_lab_dependency)]
"""Dependency for routes that need several transactions, or long checks before they write."""

SettingsOf = Annotated[Settings, Depends(_settings_dependency)]
ReadSession = Annotated[Session, Depends(_read_session)]
WriteSession = Annotated[Session, Depends(_write_session)]
