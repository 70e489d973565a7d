"""FastAPI dependencies: settings, a read-only session, and a session that commits before the response.

Sessions are context managers, which `backend.http.routing.Route` enters.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from backend.base.settings import Settings
from backend.storage.engine import Sessions, interrupt_of, reading
from backend.storage.interruption import interruptible


@dataclass(frozen=True, slots=True)
class Lab:
    """The parts of the application, kept in `app.state.lab`."""

    settings: Settings
    engine: Engine
    sessions: Sessions


def lab_of(request: Request) -> Lab:
    """Return the application's parts."""
    lab: Lab = request.app.state.lab
    return lab


async def _lab(request: Request) -> Lab:  # what never waits is not a function that a thread has to run
    return lab_of(request)


async def _settings(request: Request) -> Settings:
    return lab_of(request).settings


@contextmanager
def _interruptible_reading(sessions: Sessions) -> Iterator[Session]:
    with reading(sessions) as session, interruptible(interrupt_of(session)):
        yield session


async def _reading(request: Request) -> AbstractContextManager[Session]:
    return _interruptible_reading(lab_of(request).sessions)


async def _writing(request: Request) -> AbstractContextManager[Session]:
    return lab_of(request).sessions.begin()


LabOf = Annotated[Lab, Depends(_lab)]
"""Dependency for routes that need several transactions, or long checks before they write."""

SettingsOf = Annotated[Settings, Depends(_settings)]
ReadSession = Annotated[Session, Depends(_reading)]
WriteSession = Annotated[Session, Depends(_writing)]
