"""Jumps of the database's clock: detect them, report them to the affected runs, and repair recorded times.

The clock may be set by hand or over the network; SQLite uses the clock of the machine. The clock alone never
causes a run to be taken back (see backend/runs/leases.py). But after the clock was set back, earlier recorded
times are in the future: leases, delays and heartbeats would last until the clock has caught up, and so would
live pages.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import func, select, union_all, update
from sqlalchemy.orm import Session

from backend.base.settings import MAX_LEASE_SECONDS
from backend.runs.events import add_event
from backend.storage.engine import db_now
from backend.storage.models import Run, Worker

JUMP_SECONDS = 5.0
"""Smallest change of the clock that counts as a jump, in seconds."""

LONGEST_PAUSE_SECONDS = 60.0
"""Maximum delay before a failed run starts again, in seconds."""


def elapsed_seconds() -> float:
    """Return the seconds since the machine started, including sleep, unaffected by clock changes."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


_WRITTEN = union_all(
    select(func.max(Run.changed_at).label("at")),
    select(func.max(Run.queued_at)).where(Run.status == "queued"),
    select(func.max(Run.run_after) - LONGEST_PAUSE_SECONDS).where(Run.status == "queued"),
    select(func.max(Run.lease_until) - MAX_LEASE_SECONDS).where(Run.status == "running"),
    select(func.max(Worker.seen_at)),
).subquery()
"""Earliest time at which each time that `repair_times` repairs can have been written."""

_NOW_AND_NEWEST = select(db_now(), select(func.max(_WRITTEN.c.at)).scalar_subquery())


class ClockReading(NamedTuple):
    """A reading of the database's clock."""

    now: float
    newest: float
    """Latest recorded time."""
    offset: float
    """The database's clock minus the time since the machine started, in seconds."""
    jump: float
    """Seconds by which the clock jumped since the last reading, or for the first since the latest record."""

    @property
    def went_back(self) -> bool:
        """Whether recorded times may be in the future."""
        return self.jump < 0 or self.newest > self.now + JUMP_SECONDS


class ClockWatch:
    """Observations of the database's clock by one process."""

    def __init__(self, *, read_elapsed: Callable[[], float] = elapsed_seconds) -> None:
        self._elapsed = read_elapsed
        self._offset: float | None = None

    def read_clock(self, session: Session) -> ClockReading:
        """Read the clock; a jump is reported in every reading until `settled` is called."""
        started_at = self._elapsed()
        now, newest = session.execute(_NOW_AND_NEWEST).one()
        newest = now if newest is None else newest
        uncertainty = self._elapsed() - started_at
        offset = now - started_at
        jump = min(now - newest, 0.0) if self._offset is None else offset - self._offset
        if abs(jump) <= JUMP_SECONDS + uncertainty:
            self._offset, jump = offset, 0.0
        return ClockReading(now, newest, offset, jump)

    def mark_handled(self, reading: ClockReading) -> None:
        """Mark the jump that a reading reported as handled."""
        self._offset = reading.offset


def report_jump(session: Session, jump: float) -> str:
    """Add an event to every running run, or to the installation if none is running; return its message."""
    movement = "jumped ahead" if jump > 0 else "went back"
    message = (
        f"the database's clock {movement} by {abs(jump):,.0f} s: nothing is lost and runs continue, "
        "but times before and after the jump cannot be compared"
    )
    running_runs = session.execute(select(Run.id, Run.attempt).where(Run.status == "running")).all()
    targets: list[tuple[str | None, int | None]] = [(row.id, row.attempt) for row in running_runs]
    for run_id, attempt in targets or [(None, None)]:
        add_event(session, "clock", message, run_id=run_id, attempt=attempt, level="warning")
    return message


def repair_times(session: Session, reading: ClockReading, *, lease_seconds: float) -> None:
    """Repair recorded times after the clock was set back: times in the future become relative to now."""
    now = reading.now
    shifted_time = now - (reading.newest - Run.queued_at) * 1e-6  # keeps their order, before later runs
    for statement in (
        update(Run).where(Run.lease_until > now + lease_seconds).values(lease_until=now + lease_seconds),
        update(Run).where(Run.run_after > now + LONGEST_PAUSE_SECONDS).values(run_after=now),
        update(Run).where(Run.status == "queued", Run.queued_at > now).values(queued_at=shifted_time),
        update(Run).where(Run.changed_at > now + 1.0).values(changed_at=now),
        update(Worker).where(Worker.seen_at > now + 1.0).values(seen_at=now),
    ):
        session.execute(statement, execution_options={"synchronize_session": False})
