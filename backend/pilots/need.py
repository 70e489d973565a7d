"""Number of pilot workers to start: what waits, less what is there or on its way."""

from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backend.db.models import Run
from backend.runs.lifecycle import claimable
from backend.workers.store import live_slots


class Pilots(NamedTuple):
    """Pilots as the cluster knows them."""

    waiting: int
    """Submitted, and not started yet."""
    running: int


class Need(NamedTuple):
    """Findings of one look at the queue."""

    runs: int
    """Runs that wait for a worker."""
    free_slots: int
    """Slots of workers of any kind that have no run."""
    pilots: int
    """Pilots to start now."""


def need_of(session: Session, there: Pilots, *, most: int) -> Need:
    """Pilots that are wanted beside those that are `there`; at most `most` exist at a time.

    A pilot takes one run at a time. One that has just started counts as on its way until its slot is seen.
    """
    runs = session.scalar(select(func.count()).select_from(Run).where(claimable(), Run.wish == "")) or 0
    free = sum(slot.run_id is None for slot in live_slots(session))
    wanted = min(runs - free - there.waiting, most - there.waiting - there.running)
    return Need(runs, free, max(0, wanted))
