"""The database records of worker slots, which workers update every few seconds."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from backend.runs.workers.devices import CPU, MAX_CPU_RANKS, Slot
from backend.storage.engine import db_now
from backend.storage.live_workers import has_recent_heartbeat
from backend.storage.models import Worker

FORGOTTEN_SECONDS = 3600.0
"""Seconds after which a worker without a heartbeat is removed from the list."""


def register_slot(
    session: Session, worker_id: str, slot: Slot, *, host: str, pid: int, nodes: int = 1
) -> None:
    """Register a new slot; `nodes` is the number of nodes in its worker's group."""
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
    """Record a heartbeat with the state of a slot; return False if the slot is not registered (any more)."""
    statement = (
        update(Worker)
        .where(Worker.id == worker_id)
        .values(status=status, run_id=run_id, stats=stats, seen_at=db_now())
    )
    return bool(session.execute(statement).rowcount)  # type: ignore[attr-defined]


def remove_slot(session: Session, worker_id: str) -> None:
    """Remove a slot that is ending."""
    session.execute(delete(Worker).where(Worker.id == worker_id))


def forget_silent(session: Session) -> None:
    """Remove slots that have had no heartbeat for a long time."""
    session.execute(delete(Worker).where(Worker.seen_at < db_now() - FORGOTTEN_SECONDS))


def load_slots(session: Session, *, host: str, pid: int) -> list[Worker]:
    """Return the slots that a worker process has registered."""
    query = select(Worker).where(Worker.host == host, Worker.pid == pid).order_by(Worker.slot)
    return list(session.scalars(query))


def live_slots(session: Session) -> list[Worker]:
    """Return the slots with a recent heartbeat."""
    query = select(Worker).where(has_recent_heartbeat()).order_by(Worker.host, Worker.slot)
    return list(session.scalars(query))


def max_run_devices(slots: Sequence[Worker]) -> int:
    """Return the maximum number of devices of one run: GPUs of a worker, or ranks of a CPU slot."""
    gpus = Counter((slot.host, slot.pid) for slot in slots if slot.device != CPU)
    ranks = [MAX_CPU_RANKS for slot in slots if slot.device == CPU]
    return max([*gpus.values(), *ranks], default=0)
