"""The record of worker slots: written by each worker every few seconds, read by everybody."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from backend.runs.workers.devices import CPU, CPU_RANKS, Slot
from backend.storage.engine import db_now
from backend.storage.live_workers import has_recent_heartbeat
from backend.storage.models import Worker

FORGOTTEN_SECONDS = 3600.0
"""A gone worker leaves the list after this time."""


def register_slot(
    session: Session, worker_id: str, slot: Slot, *, host: str, pid: int, nodes: int = 1
) -> None:
    """Enter a slot that has just started; `nodes` are those of its worker's group."""
    session.merge(
        Worker(
            id=worker_id,
            host=host,
            pid=pid,
            slot=slot.number,
            device=slot.device,
            device_name=slot.device_name,
            nodes=nodes,
            status="idle",
            run_id=None,
            stats={},
        )
    )


def report_slot(
    session: Session, worker_id: str, status: str, run_id: str | None, stats: dict[str, Any]
) -> bool:
    """Record a sign of life; return False when the slot is not in the record (any more)."""
    statement = (
        update(Worker)
        .where(Worker.id == worker_id)
        .values(status=status, run_id=run_id, stats=stats, seen_at=db_now())
    )
    return bool(session.execute(statement).rowcount)  # type: ignore[attr-defined]


def remove_slot(session: Session, worker_id: str) -> None:
    """Take out a slot that ends."""
    session.execute(delete(Worker).where(Worker.id == worker_id))


def forget_silent(session: Session) -> None:
    """Take out slots that ended without saying so long ago."""
    session.execute(delete(Worker).where(Worker.seen_at < db_now() - FORGOTTEN_SECONDS))


def load_slots(session: Session, *, host: str, pid: int) -> list[Worker]:
    """Return the slots that one worker process has registered."""
    query = select(Worker).where(Worker.host == host, Worker.pid == pid).order_by(Worker.slot)
    return list(session.scalars(query))


def live_slots(session: Session) -> list[Worker]:
    """Return the slots that were seen lately."""
    query = select(Worker).where(has_recent_heartbeat()).order_by(Worker.host, Worker.slot)
    return list(session.scalars(query))


def max_run_devices(slots: Sequence[Worker]) -> int:
    """Return the most devices that one run can have on these slots: GPUs of a worker, or ranks of a CPU
    slot.
    """
    gpus = Counter((slot.host, slot.pid) for slot in slots if slot.device != CPU)
    ranks = [CPU_RANKS for slot in slots if slot.device == CPU]
    return max([*gpus.values(), *ranks], default=0)
