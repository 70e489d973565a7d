"""HTTP routes of workers and of the queue."""

from typing import Any

from sqlalchemy import and_, or_, select, tuple_
from sqlalchemy.orm import Session

from backend.http.dependencies import ReadSession
from backend.http.paging import iso_time, make_page, read_cursor
from backend.http.responses import Cursor, Json, Limit, Page
from backend.http.routing import Router
from backend.runs.list import run_columns
from backend.runs.store import run_json
from backend.runs.workers.nodes import complete_groups, waiting_reason
from backend.runs.workers.store import live_slots, max_run_devices
from backend.storage.engine import db_now
from backend.storage.live_workers import MAX_SILENT_SECONDS
from backend.storage.models import Run, Worker

router = Router(prefix="/api/v1", tags=["workers"])


@router.get("/workers", response_model=Page)
def workers(session: ReadSession) -> Json:
    """List every slot where a run can train, with its state; `lost` means no recent heartbeat."""
    now = session.scalar(select(db_now())) or 0.0
    busy_runs = session.execute(select(Run.id, Run.name).join(Worker, Worker.run_id == Run.id))
    names = {row.id: row.name for row in busy_runs}
    rows = session.scalars(select(Worker).order_by(Worker.host, Worker.started_at, Worker.slot)).all()
    return Json({"items": [_worker_json(row, now, names) for row in rows], "next": None})


def _worker_json(worker: Worker, now: float, names: dict[str, str]) -> dict[str, Any]:
    is_lost = now - worker.seen_at > MAX_SILENT_SECONDS
    return {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "slot": worker.slot,
        "device": worker.device,
        "device_name": worker.device_name,
        "status": "lost" if is_lost else worker.status,
        "run": worker.run_id,
        "run_name": names.get(worker.run_id or ""),
        "started_at": iso_time(worker.started_at),
        "seen_at": iso_time(worker.seen_at),
        "stats": worker.stats,
    }


@router.get("/queue", response_model=Page)
def queue(session: ReadSession, limit: Limit = 100, cursor: Cursor = "") -> Json:
    """List the queued runs in the order in which they will start, each with the reason why it waits."""
    waiting_query = run_columns().add_columns(Run.run_after, Run.own_failures, Run.devices, Run.nodes)
    waiting_query = waiting_query.where(Run.status == "queued", Run.deleted_at.is_(None))
    first = 1
    if last_key := read_cursor(cursor, int, int, (int, float), str):
        position, priority, *queue_key = last_key
        later = tuple_(Run.queued_at, Run.id) > tuple(queue_key)
        waiting_query = waiting_query.where(
            or_(Run.priority < priority, and_(Run.priority == priority, later))
        )
        first = position + 1
    order = (Run.priority.desc(), Run.queued_at, Run.id)
    rows = session.execute(waiting_query.order_by(*order).limit(limit + 1)).all()
    explain_waiting = _waiting_reasons(session)
    return Json(
        make_page(
            list(enumerate(rows, first)),
            limit,
            lambda item: run_json(item[1]) | {"position": item[0], "why": explain_waiting(item[0], item[1])},
            lambda item: (item[0], item[1].priority, item[1].queued_at, item[1].id),
        )
    )


def _waiting_reasons(session: Session) -> Any:
    """Return a function that returns the reason why a run waits, given its position in the queue."""
    now = session.scalar(select(db_now())) or 0.0
    slots = [slot for slot in live_slots(session) if slot.nodes == 1]
    groups = complete_groups(session)
    widest_worker, idle = max_run_devices(slots), [slot for slot in slots if slot.run_id is None]
    max_free_devices = max_run_devices(idle)

    def why(position: int, run: Any) -> str:
        if run.run_after > now:
            failures = f", {run.own_failures} failed so far" if run.own_failures else ""
            return f"the next try, in {run.run_after - now:.0f} s{failures}"
        if run.nodes > 1:
            return waiting_reason(groups, run.nodes, run.devices)
        if not slots:
            return "a worker (none is running)"
        if run.devices > widest_worker:
            return f"a worker with {run.devices} devices (the largest one running has {widest_worker})"
        if position <= len(idle) and run.devices <= max_free_devices:
            return "about to start"
        runs_ahead = position - 1
        suffix = f"; {runs_ahead} {'run' if runs_ahead == 1 else 'runs'} ahead of it" if runs_ahead else ""
        requirement = (
            "a free worker slot" if run.devices == 1 else f"{run.devices} free devices of one worker"
        )
        return f"{requirement}{suffix}"

    return why
