"""The reconciler: calls workers for waiting runs, takes back runs whose worker was lost, carries out
deletions, mends what a clock that was set has disturbed, and goes on with the chores.

Runs in the service's process. One process at a time does it, by a lease in SQL; two would do no harm.
"""

import logging
import threading
import time
import uuid

from sqlalchemy import func, or_, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from backend.base.settings import Settings
from backend.metrics.block_damage import forget_reported, noticed
from backend.runs.deletion import carry_on
from backend.runs.high_water_mark import raise_mark
from backend.runs.leases import LostRuns
from backend.runs.lifecycle import claimable, take_back_lost
from backend.runs.queue.doorbell import ring
from backend.runs.workers.store import live_slots
from backend.service.maintenance.chores import all_chores
from backend.service.maintenance.clock_jumps import ClockWatch, Look, mend, tell
from backend.service.maintenance.damaged_blocks import tell_damage
from backend.storage.artifacts.store import ArtifactFault
from backend.storage.engine import Sessions, db_now, insert_into, reading
from backend.storage.models import Run, Singleton

logger = logging.getLogger(__name__)

NAME = "reconciler"
LOOK_SECONDS = 1.0
LEASE_SECONDS = 5.0
DELETION_SECONDS = 0.5
"""Seconds of permanent deletion per look; the next one goes on."""
DELETION_PAUSE_SECONDS = 30.0
MARK_SECONDS = 10.0
"""How often the high-water mark of the database is raised."""

_WAITING = select(func.count()).select_from(Run).where(claimable(), Run.wish == "")
_DELETED = select(Run.id).where(Run.deleting_at.is_not(None)).limit(1)


class Reconciler:
    """One thread that looks every second."""

    def __init__(self, settings: Settings, sessions: Sessions) -> None:
        self._settings = settings
        self._sessions = sessions
        self._lost = LostRuns(settings.lease_seconds, look_seconds=LOOK_SECONDS)
        self._clock = ClockWatch()
        self._delete_after = 0.0
        self._chores = all_chores(settings, sessions)
        self._mark_after = 0.0
        self._owner = uuid.uuid4().hex
        self._looked_at = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)

    @property
    def age_seconds(self) -> float:
        """Time since the last look that succeeded, or since the start."""
        return time.monotonic() - self._looked_at

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the look that is under way."""
        self._stopping.set()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                self.look()
                self._looked_at = time.monotonic()
            except SQLAlchemyError as error:
                self._lost.forget()
                logger.warning("the reconciler failed: %s", str(error).splitlines()[0])
            except Exception:  # a stranger's rows may hold what no test has met: the next look goes on
                self._lost.forget()
                logger.exception("the reconciler failed")

    def look(self) -> int:
        """One round; returns how often the bell was rung."""
        with reading(self._sessions) as session:
            clock = self._clock.look(session)
            rings = _rings_wanted(session)
            lost = self._lost.look(session)
            is_deleting = session.scalar(_DELETED) is not None
            for chore in self._chores:
                chore.look(session)
            if time.monotonic() > self._mark_after:
                raise_mark(self._settings, session)
                self._mark_after = time.monotonic() + MARK_SECONDS
        is_odd = bool(clock.jump) or clock.went_back
        chores = [chore for chore in self._chores if chore.work is not None]
        damage = noticed()
        if not (rings or lost or is_deleting or is_odd or chores or damage):
            return 0
        with self._sessions.begin() as session:
            if not take_lease(session, NAME, self._owner, seconds=LEASE_SECONDS):
                self._clock.settled(clock)  # by whoever has the lease
                return 0
            if is_odd:
                self._set_right(session, clock)
            if taken := take_back_lost(session, lost):
                logger.warning("took back runs whose worker was lost: %s", ", ".join(taken))
            tell_damage(session, damage.items())
        forget_reported(damage)
        self._clock.settled(clock)
        for _ in range(rings):
            if not ring(self._settings):
                break
        if is_deleting:
            self._delete()
        for chore in chores:
            chore.go_on()
        return rings

    def _set_right(self, session: Session, clock: Look) -> None:
        if clock.jump:
            logger.warning("%s", tell(session, clock.jump))
        if clock.went_back:
            mend(session, clock, lease_seconds=self._settings.lease_seconds)

    def _delete(self) -> None:
        """Go on with deletions; where files cannot be removed, the next try waits a while."""
        if time.monotonic() < self._delete_after:
            return
        try:
            carry_on(self._sessions, self._settings, seconds=DELETION_SECONDS)
        except (OSError, ArtifactFault) as error:
            self._delete_after = time.monotonic() + DELETION_PAUSE_SECONDS
            logger.warning("files of a deleted run cannot be removed: %s", error)


def take_lease(session: Session, name: str, owner: str, *, seconds: float) -> bool:
    """Be, or stay, the one who does a job.

    A lease that lasts longer than any that could be given now is of a time before the clock went back.
    """
    is_over = or_(Singleton.until < db_now(), Singleton.until > db_now() + max(seconds, LEASE_SECONDS))
    free = update(Singleton).where(Singleton.name == name, or_(Singleton.owner == owner, is_over))
    mine = free.values(owner=owner, until=db_now() + seconds).returning(Singleton.name)
    if session.scalar(mine) is not None:
        return True
    row = insert_into(session, Singleton).values(name=name, owner=owner, until=db_now() + seconds)
    return session.scalar(row.on_conflict_do_nothing().returning(Singleton.name)) is not None


def _rings_wanted(session: Session) -> int:
    """One ring for each run that waits and has a free place."""
    waiting = session.scalar(_WAITING) or 0
    if not waiting:
        return 0
    idle = sum(1 for slot in live_slots(session) if slot.run_id is None)
    return min(waiting, idle)
