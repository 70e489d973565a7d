"""Whether the service works, for people, load balancers and Prometheus."""

from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from starlette.responses import Response

from backend.answers import Json
from backend.database import db_now, reading
from backend.depends import Lab, ReadSession, lab_of
from backend.models import Run
from backend.problem import ERRORS, problem
from backend.requests import REQUESTS
from backend.runs.lifecycle import STATUSES
from backend.status import LOOKERS, Status
from backend.workers.store import live_slots

router = APIRouter(tags=["health"], responses=ERRORS)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/healthz", response_model=dict[str, str])
async def healthz() -> Json:
    """The process answers."""
    return Json({"status": "ok"})


@router.get("/readyz", response_model=dict[str, str])
async def readyz(request: Request) -> Response:
    """200 only when database, broker and at least one worker are ready; else 503 with what is missing."""
    missing = await to_thread.run_sync(_missing, lab_of(request), request.app.state.status, limiter=LOOKERS)
    if missing:
        return problem(503, "Not ready", "; ".join(missing), headers={"Retry-After": "5"})
    return Json({"status": "ready"})


def _missing(lab: Lab, status: Status) -> list[str]:
    found = status.look()
    missing = [found[part]["detail"] for part in ("database", "broker") if found[part]["state"] != "ok"]
    if found["database"]["state"] == "ok":
        with reading(lab.sessions) as session:
            missing += [] if live_slots(session) else ["no worker is running"]
    return missing


@router.get("/metrics", response_class=Response)
def metrics(session: ReadSession) -> Response:
    """Prometheus: runs by status, workers, the oldest waiting run, how far recording lags, request times."""
    registry = CollectorRegistry()
    for name, help_text, values in _gauges(session):
        labels = ["status"] if "" not in values else []
        gauge = Gauge(f"grpolab_{name}", help_text, labels, registry=registry)
        for status, value in values.items():
            (gauge.labels(status) if labels else gauge).set(value)
    return Response(generate_latest(registry) + generate_latest(REQUESTS), media_type=CONTENT_TYPE)


def _gauges(session: Session) -> list[tuple[str, str, dict[str, float]]]:
    counted: Any = session.execute(
        select(Run.status, func.count()).where(Run.deleted_at.is_(None)).group_by(Run.status)
    )
    counts = dict.fromkeys(STATUSES, 0.0) | {status: float(count) for status, count in counted}
    slots = live_slots(session)
    busy = float(sum(1 for slot in slots if slot.run_id))
    waits = session.scalar(select(db_now() - func.min(Run.queued_at)).where(Run.status == "queued"))
    lag = session.scalar(select(db_now() - func.min(Run.progress_at)).where(Run.status == "running"))
    return [
        ("runs", "Runs by status.", counts),
        ("workers", "Places where runs can train.", {"busy": busy, "idle": len(slots) - busy}),
        ("queue_wait_seconds", "How long the oldest waiting run has waited.", {"": waits or 0.0}),
        ("progress_lag_seconds", "Time since the slowest running run was last written.", {"": lag or 0.0}),
    ]
