"""The reconciler: a background thread of the service that keeps recorded and actual state consistent.

It notifies workers of queued runs, requeues runs whose worker was lost, deletes runs permanently, repairs
recorded times after the database's clock was set back, and continues the chores. A lease in the database
makes one process reconcile at a time, although two would do no harm.
"""

import logging
import threading
import time
import uuid

from sqlalchemy import func, or_, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from backend.base.settings import Settings
from backend.metrics.block_damage import forget_damage, recorded_damage
from backend.runs.deletion import continue_deletions
from backend.runs.high_water_mark import raise_mark
from backend.runs.leases import LostRuns
from backend.runs.lifecycle import claimable_condition, take_back_lost
from backend.runs.queue.doorbell import ring
from backend.runs.workers.store import live_slots
from backend.service.maintenance.chores import all_chores
from backend.service.maintenance.clock_jumps import ClockReading, ClockWatch, repair_times, report_jump
from backend.service.maintenance.damaged_blocks import tell_damage
from backend.storage.artifacts.store import ArtifactFault
from backend.storage.engine import Sessions, db_now, insert_into, open_read_session
from backend.storage.models import Run, Singleton

logger = logging.getLogger(__name__)

NAME = "reconciler"
POLL_SECONDS = 1.0
"""Seconds between two rounds."""
LEASE_SECONDS = 5.0
"""Duration of the reconciler's lease, in seconds."""
DELETION_SECONDS = 0.5
"""Maximum duration of permanent deletions in one round, in seconds; the next round continues."""
DELETION_PAUSE_SECONDS = 30.0
"""Seconds until deletions are retried after files could not be removed."""
MARK_SECONDS = 10.0
"""Seconds between two updates of the database's high-water mark."""

_WAITING = select(func.count()).select_from(Run).where(claimable_condition(), Run.requested_action == "")
_DELETED = select(Run.id).where(Run.deleting_at.is_not(None)).limit(1)


class Reconciler:
    """A thread that runs one round of the reconciler every second."""

    def __init__(self, settings: Settings, sessions: Sessions) -> None:
        self._settings = settings
        self._sessions = sessions
        self._lost = LostRuns(settings.lease_seconds, look_seconds=POLL_SECONDS)
        self._clock = ClockWatch()
        self._delete_after = 0.0
        self._chores = all_chores(settings, sessions)
        self._mark_after = 0.0
        self._owner = uuid.uuid4().hex
        self._succeeded_at = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)

    @property
    def age_seconds(self) -> float:
        """Seconds since the last successful round, or since the start."""
        return time.monotonic() - self._succeeded_at

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the current round, waiting at most 5 s."""
        self._stopping.set()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._stopping.wait(POLL_SECONDS):
            try:
                self.run_once()
                self._succeeded_at = time.monotonic()
            except SQLAlchemyError as error:
                self._lost.forget()
                logger.warning("the reconciler failed: %s", str(error).splitlines()[0])
            except Exception:  # an unexpected row must not end the thread; the next round tries again
                self._lost.forget()
                logger.exception("the reconciler failed")

    def run_once(self) -> int:
        """Run one round; return how often the doorbell should be rung."""
        with open_read_session(self._sessions) as session:
            clock = self._clock.read_clock(session)
            rings = _count_rings(session)
            lost_leases = self._lost.find_expired(session)
            is_deleting = session.scalar(_DELETED) is not None
            for chore in self._chores:
                chore.poll(session)
            if time.monotonic() > self._mark_after:
                raise_mark(self._settings, session)
                self._mark_after = time.monotonic() + MARK_SECONDS
        is_odd = bool(clock.jump) or clock.went_back
        chores = [chore for chore in self._chores if chore.work is not None]
        damage = recorded_damage()
        if not (rings or lost_leases or is_deleting or is_odd or chores or damage):
            return 0
        with self._sessions.begin() as session:
            if not take_lease(session, NAME, self._owner, seconds=LEASE_SECONDS):
                self._clock.mark_handled(clock)  # the process with the lease handles the jump
                return 0
            if is_odd:
                self._handle_clock(session, clock)
            if taken_back := take_back_lost(session, lost_leases):
                logger.warning("took back runs whose worker was lost: %s", ", ".join(taken_back))
            tell_damage(session, damage.items())
        forget_damage(damage)
        self._clock.mark_handled(clock)
        for _ in range(rings):
            if not ring(self._settings):
                break
        if is_deleting:
            self._delete()
        for chore in chores:
            chore.go_on()
        return rings

    def _handle_clock(self, session: Session, clock: ClockReading) -> None:
        """Report a jump of the database's clock, and repair recorded times if it was set back."""
        if clock.jump:
            logger.warning("%s", report_jump(session, clock.jump))
        if clock.went_back:
            repair_times(session, clock, lease_seconds=self._settings.lease_seconds)

    def _delete(self) -> None:
        """Continue the deletions; pause for DELETION_PAUSE_SECONDS if files cannot be removed."""
        if time.monotonic() < self._delete_after:
            return
        try:
            continue_deletions(self._sessions, self._settings, seconds=DELETION_SECONDS)
        except (OSError, ArtifactFault) as error:
            self._delete_after = time.monotonic() + DELETION_PAUSE_SECONDS
            logger.warning("files of a deleted run cannot be removed: %s", error)


def take_lease(session: Session, name: str, owner: str, *, seconds: float) -> bool:
    """Acquire or renew the lease on a job; return whether the owner holds it.

    A lease that lasts longer than any current lease could was written before the clock was set back, and
    counts as expired.
    """
    is_over = or_(Singleton.until < db_now(), Singleton.until > db_now() + max(seconds, LEASE_SECONDS))
    available_update = update(Singleton).where(Singleton.name == name, or_(Singleton.owner == owner, is_over))
    acquire = available_update.values(owner=owner, until=db_now() + seconds).returning(Singleton.name)
    if session.scalar(acquire) is not None:
        return True
    row = insert_into(session, Singleton).values(name=name, owner=owner, until=db_now() + seconds)
    return session.scalar(row.on_conflict_do_nothing().returning(Singleton.name)) is not None


def _count_rings(session: Session) -> int:
    """Return how often to ring the doorbell: once for each queued run that an idle slot can start."""
    waiting_count = session.scalar(_WAITING) or 0
    if not waiting_count:
        return 0
    idle_slots = sum(1 for slot in live_slots(session) if slot.run_id is None)
    return min(waiting_count, idle_slots)
