"""Jumps of the database's clock: detected, reported to the affected runs, and repaired in recorded times.

The clock may be set by hand or over the network. SQLite uses the machine's clock. No run is taken back only
because of the clock (see backend/runs/leases.py). But after the clock was set back, times that were recorded
before lie in the future: leases, pauses and heartbeats would last until the clock has caught up, and live
pages would wait for it too.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import func, select, union_all, update
from sqlalchemy.orm import Session

from backend.base.settings import LONGEST_LEASE_SECONDS
from backend.runs.events import add_event
from backend.storage.engine import db_now
from backend.storage.models import Run, Worker

JUMP_SECONDS = 5.0
"""Smallest change of the clock that counts as a jump, in seconds."""

LONGEST_PAUSE_SECONDS = 60.0
"""Longest pause before a run is tried again, in seconds."""


def elapsed_seconds() -> float:
    """Return the seconds since the machine started, sleep included, unaffected by changes of its clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


_WRITTEN = union_all(
    select(func.max(Run.changed_at).label("at")),
    select(func.max(Run.queued_at)).where(Run.status == "queued"),
    select(func.max(Run.run_after) - LONGEST_PAUSE_SECONDS).where(Run.status == "queued"),
    select(func.max(Run.lease_until) - LONGEST_LEASE_SECONDS).where(Run.status == "running"),
    select(func.max(Worker.seen_at)),
).subquery()
"""Earliest moment at which each time that `repair_times` repairs can have been written."""

_NOW_AND_NEWEST = select(db_now(), select(func.max(_WRITTEN.c.at)).scalar_subquery())


class Look(NamedTuple):
    """One reading of the database's clock."""

    now: float
    newest: float
    """Latest recorded time."""
    offset: float
    """Database's clock minus the time since the machine started, in seconds."""
    jump: float
    """Seconds by which the clock was set since the last reading; at the first, since the latest record."""

    @property
    def went_back(self) -> bool:
        """Whether recorded times may lie in the future."""
        return self.jump < 0 or self.newest > self.now + JUMP_SECONDS


class ClockWatch:
    """One process's observations of the database's clock."""

    def __init__(self, *, elapsed: Callable[[], float] = elapsed_seconds) -> None:
        self._elapsed = elapsed
        self._offset: float | None = None

    def look(self, session: Session) -> Look:
        """Read the clock; a jump is reported in every reading until `settled` is called."""
        began = self._elapsed()
        now, newest = session.execute(_NOW_AND_NEWEST).one()
        newest = now if newest is None else newest
        uncertain = self._elapsed() - began
        offset = now - began
        jump = min(now - newest, 0.0) if self._offset is None else offset - self._offset
        if abs(jump) <= JUMP_SECONDS + uncertain:
            self._offset, jump = offset, 0.0
        return Look(now, newest, offset, jump)

    def settled(self, look: Look) -> None:
        """Mark the jump that a reading reported as handled."""
        self._offset = look.offset


def report_jump(session: Session, jump: float) -> str:
    """Add an event to every running run, or to the installation if none is running; return its text."""
    movement = "jumped ahead" if jump > 0 else "went back"
    line = (
        f"the database's clock {movement} by {abs(jump):,.0f} s: nothing is lost and runs continue, "
        "but times before and after the jump cannot be compared"
    )
    running = session.execute(select(Run.id, Run.attempt).where(Run.status == "running")).all()
    concerned: list[tuple[str | None, int | None]] = [(row.id, row.attempt) for row in running]
    for run_id, attempt in concerned or [(None, None)]:
        add_event(session, "clock", line, run_id=run_id, attempt=attempt, level="warning")
    return line


def repair_times(session: Session, look: Look, *, lease_seconds: float) -> None:
    """Repair recorded times after the clock was set back: times in the future start from now."""
    now = look.now
    shifted = now - (look.newest - Run.queued_at) * 1e-6  # keeps their order, ahead of later runs
    for changes in (
        update(Run).where(Run.lease_until > now + lease_seconds).values(lease_until=now + lease_seconds),
        update(Run).where(Run.run_after > now + LONGEST_PAUSE_SECONDS).values(run_after=now),
        update(Run).where(Run.status == "queued", Run.queued_at > now).values(queued_at=shifted),
        update(Run).where(Run.changed_at > now + 1.0).values(changed_at=now),
        update(Worker).where(Worker.seen_at > now + 1.0).values(seen_at=now),
    ):
        session.execute(changes, execution_options={"synchronize_session": False})
