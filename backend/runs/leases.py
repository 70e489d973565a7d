"""Acquire and renew the leases of workers on runs, and detect lost workers.

An expired lease does not prove that its worker was lost. After a laptop slept or the database was
unavailable, all leases have expired at once, and a healthy worker renews its lease as soon as it can. A
process therefore counts a run as lost only after it has seen the same lease expired for a while, with the
database responding throughout.
"""

import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, false, or_, select, true, update
from sqlalchemy.orm import Session

from backend.base.errors import Fenced
from backend.storage.engine import db_now
from backend.storage.models import Run


class Lease(NamedTuple):
    """The lease of one attempt as read from the database."""

    run_id: str
    attempt: int
    expires_at: float


def fence(session: Session, run_id: str, attempt: int, *, owner: str = "", **values: Any) -> str:
    """Check that this attempt owns the run, store `values` in its row and return the user's request.

    With `owner`, the attempt must also belong to that worker. A trainer calls this at the start of every
    transaction. Raise Fenced if another attempt owns the run.
    """
    belongs_to_owner = Run.worker_id == owner if owner else true()
    statement = (
        update(Run)
        .where(Run.id == run_id, Run.attempt == attempt, Run.status == "running", belongs_to_owner)
        .values(**(values or {"attempt": attempt, "changed_at": Run.changed_at}))
        .returning(Run.requested_action)
    )
    requested_action = session.execute(statement).scalar_one_or_none()
    if requested_action is None:
        raise Fenced(run_id, attempt)
    return requested_action


def renew_lease(
    session: Session, run_id: str, attempt: int, *, owner: str = "", lease_seconds: float = 60.0
) -> str:
    """Renew the lease on a run and return the requested action; raise Fenced if another attempt owns it."""
    expires_at = db_now() + lease_seconds
    return fence(session, run_id, attempt, owner=owner, lease_until=expires_at, changed_at=Run.changed_at)


def grace_seconds(lease_seconds: float) -> float:
    """Return how long a lease must be seen as expired, in seconds: a renewal interval plus at most 5 s."""
    return lease_seconds / 4 + min(5.0, lease_seconds / 12)


def lease_expired() -> ColumnElement[bool]:
    """Return the SQL condition that the run's lease has expired by the database's clock.

    A pushed run has no lease.
    """
    return and_(Run.status == "running", Run.writer.is_(None), Run.lease_until < db_now())


_RUN_OUT = select(Run.id, Run.attempt, Run.lease_until).where(lease_expired())


def is_lost_lease(lost_leases: Collection[Lease]) -> ColumnElement[bool]:
    """Return the SQL condition that the run's lease is one of these, unchanged and still expired."""
    conditions: list[Any] = [
        and_(Run.id == lease.run_id, Run.attempt == lease.attempt, Run.lease_until == lease.expires_at)
        for lease in lost_leases
    ]
    return and_(lease_expired(), or_(*conditions)) if conditions else false()


class LostRuns:
    """The expired leases that one process has observed."""

    def __init__(
        self, lease_seconds: float, *, look_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._grace = grace_seconds(lease_seconds)
        self._longest_gap = 2 * look_seconds + 1.0
        self._clock = clock
        self._looked_at = clock()
        self._seen: dict[Lease, float] = {}

    def find_expired(self, session: Session) -> list[Lease]:
        """Return the leases seen as expired for long enough; must be called every `look_seconds`."""
        rows = session.execute(_RUN_OUT).all()
        now = self._clock()
        if now - self._looked_at > self._longest_gap:
            self._seen.clear()  # the database or this process may have been away
        self._looked_at = now
        self._seen = {lease: self._seen.get(lease, now) for lease in (Lease(*row) for row in rows)}
        return [lease for lease, first_seen_at in self._seen.items() if now - first_seen_at >= self._grace]

    def forget(self) -> None:
        """Forget all observations; must be called if the database did not respond."""
        self._seen.clear()
