"""Detection of jumps of the database's clock: reported to the runs concerned, and mended where times decide.

The clock may be set, by hand or over the network; SQLite's is that of the machine. No lease is taken or kept
by it alone (see `lost.py`). But once it went back, what was written before lies in the future: leases, pauses
and signs of life would last until the clock has caught up, and live pages would wait for it too.
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
"""A clock that is corrected by less than this has not jumped."""

LONGEST_PAUSE_SECONDS = 60.0
"""No run waits longer than this before it is tried again."""


def elapsed_seconds() -> float:
    """Time since the machine started, its sleep included, whatever its clock is set to."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


_WRITTEN = union_all(
    select(func.max(Run.changed_at).label("at")),
    select(func.max(Run.queued_at)).where(Run.status == "queued"),
    select(func.max(Run.run_after) - LONGEST_PAUSE_SECONDS).where(Run.status == "queued"),
    select(func.max(Run.lease_until) - LONGEST_LEASE_SECONDS).where(Run.status == "running"),
    select(func.max(Worker.seen_at)),
).subquery()
"""When what `mend` mends was written, at the earliest."""

_NOW_AND_NEWEST = select(db_now(), select(func.max(_WRITTEN.c.at)).scalar_subquery())


class Look(NamedTuple):
    """The database's clock at one moment."""

    now: float
    newest: float
    """The latest time that is recorded."""
    offset: float
    """From the time since the machine started to the database's clock."""
    jump: float
    """By how many seconds the clock was set since the last look, or, at the first, since the record ended."""

    @property
    def went_back(self) -> bool:
        """Whether times may be recorded that lie in the future."""
        return self.jump < 0 or self.newest > self.now + JUMP_SECONDS


class ClockWatch:
    """One process's observations of the database's clock."""

    def __init__(self, *, elapsed: Callable[[], float] = elapsed_seconds) -> None:
        self._elapsed = elapsed
        self._offset: float | None = None

    def look(self, session: Session) -> Look:
        """Call it now and then; a jump is reported until it is `settled`."""
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
        """The jump that this look has seen is dealt with."""
        self._offset = look.offset


def tell(session: Session, jump: float) -> str:
    """One line in the history of every running run, or of the installation when none runs; the line."""
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


def mend(session: Session, look: Look, *, lease_seconds: float) -> None:
    """After the clock went back: what decides something and lies in the future, begins now."""
    now = look.now
    shifted = now - (look.newest - Run.queued_at) * 1e-6  # in the same order, before whatever comes next
    for changes in (
        update(Run).where(Run.lease_until > now + lease_seconds).values(lease_until=now + lease_seconds),
        update(Run).where(Run.run_after > now + LONGEST_PAUSE_SECONDS).values(run_after=now),
        update(Run).where(Run.status == "queued", Run.queued_at > now).values(queued_at=shifted),
        update(Run).where(Run.changed_at > now + 1.0).values(changed_at=now),
        update(Worker).where(Worker.seen_at > now + 1.0).values(seen_at=now),
    ):
        session.execute(changes, execution_options={"synchronize_session": False})
