"""The status of the service's components: database, broker, disk, and the runs that wait for them.

It does not need the database, so that a page can explain what is wrong while it is unavailable.
"""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi import Request
from kombu import Connection
from kombu.exceptions import OperationalError
from sqlalchemy.exc import SQLAlchemyError

from backend.base.settings import Settings
from backend.base.text import size_text
from backend.http.paging import iso_time
from backend.http.responses import Json
from backend.http.routing import Router
from backend.runs.queue.broker import choose_broker
from backend.service.maintenance.reconciler import take_lease
from backend.service.monitoring.backlog import read_notes
from backend.storage.engine import open_engine, open_sessions
from backend.storage.faults import Fault, database_fault, free_bytes

router = Router(prefix="/api/v1", tags=["health"])

LOOK_SECONDS = 2.0
"""Seconds between two checks of the components, regardless of the number of requests."""

PROBE_SECONDS = 3.0
"""Seconds after which a database that does not respond to a probe counts as unavailable."""

LOW_BYTES = 500_000_000
"""Free disk space in bytes below which the page shows a warning."""


@dataclass(slots=True)
class Component:
    """A component of the service, its state, and the time of its last change."""

    state: str = "ok"
    detail: str = ""
    since: float = field(default_factory=time.time)

    def become(self, fault: Fault | None) -> None:
        """Record the current fault, or None if there is none."""
        state = fault.kind if fault else "ok"
        if state != self.state:
            self.state, self.since = state, time.time()
        self.detail = fault.sentence if fault else ""

    def as_json(self) -> dict[str, Any]:
        """Return the component as the HTTP API shows it."""
        return {"state": self.state, "detail": self.detail, "since": iso_time(self.since)}


class Status:
    """Checks the components on request, at most every two seconds."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # A separate connection with a short timeout, because all other connections may be stuck.
        url = settings.effective_database_url
        self._engine = open_engine(url, pool_size=1, answer_seconds=PROBE_SECONDS)
        self._owner = uuid.uuid4().hex
        self._parts = {
            "database": Component(),
            "broker": Component(),
            "disk": Component(),
            "history": Component(),
        }
        self._looked_at = 0.0
        self._looking = threading.Lock()
        self.older = ""
        """Message about a database that is older than its state directory; empty if it is not."""

    def read_states(self) -> dict[str, Any]:
        """Return the state of all components, cached from the latest check by any caller."""
        with self._looking:
            if time.monotonic() - self._looked_at > LOOK_SECONDS:
                check_by_name: dict[str, Callable[[], Fault | None]] = {
                    "database": self._database,
                    "broker": lambda: broker_fault(self._settings),
                    "disk": lambda: disk_warning(self._settings.state),
                    "history": lambda: Fault("older", self.older) if self.older else None,
                }
                for name, check in check_by_name.items():
                    self._parts[name].become(check())
                self._looked_at = time.monotonic()
        document: dict[str, Any] = {name: state.as_json() for name, state in self._parts.items()}
        return document | {"waiting": [note.as_json() for note in read_notes(self._settings)]}

    def _database(self) -> Fault | None:
        """Check the database by writing a row, because a full disk can still be read."""
        try:
            with open_sessions(self._engine).begin() as session:
                take_lease(session, "status", self._owner, seconds=0)
        except SQLAlchemyError as error:
            unknown_fault = Fault("broken", "the database cannot be written: see the service's log")
            return database_fault(error, self._engine.url) or unknown_fault
        return None

    def close(self) -> None:
        """Close the connections to the database."""
        self._engine.dispose()


def broker_fault(settings: Settings) -> Fault | None:
    """Return the fault that prevents the delivery of doorbells, or None."""
    url = choose_broker(settings).url
    if url.startswith(("filesystem:", "memory:")):
        return None
    options = {"socket_timeout": 1, "socket_connect_timeout": 1}
    try:
        broker_connection = Connection(url, connect_timeout=1, transport_options=options)  # type: ignore[no-untyped-call]
        with broker_connection as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=1)
    except (OperationalError, OSError):
        seconds = settings.poll_seconds
        return Fault("away", f"the broker does not answer: runs still start, up to {seconds:g} s later")
    return None


def disk_warning(path: Path) -> Fault | None:
    """Return a warning if the disk is nearly full, otherwise None."""
    free_disk_bytes = free_bytes(path)
    if free_disk_bytes is None or free_disk_bytes >= LOW_BYTES:
        return None
    return Fault("full", f"the disk of {path} is nearly full: {size_text(free_disk_bytes)} free")


LOOKERS = CapacityLimiter(2)
"""Limiter with separate threads for checks, because all other threads may be waiting for the database."""


@router.get("/status", response_model=dict[str, Any])
async def status(request: Request) -> Json:
    """Return the state of database, broker, disk and history, and the runs whose steps are not stored yet."""
    return Json(await to_thread.run_sync(request.app.state.status.read_states, limiter=LOOKERS))
