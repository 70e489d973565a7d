"""Health checks for people, load balancers and Prometheus."""

from anyio import to_thread
from fastapi import Request
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import Response

from backend.http.access_log import REQUESTS
from backend.http.dependencies import Lab, get_lab
from backend.http.problem_details import problem
from backend.http.responses import Json
from backend.http.routing import Router
from backend.runs.workers.store import live_slots
from backend.service.monitoring.prometheus import Gauges
from backend.service.monitoring.status import LOOKERS, Status
from backend.storage.engine import open_read_session
from backend.storage.schema import newest_schema

router = Router(tags=["health"])


@router.get("/healthz", response_model=dict[str, str])
async def healthz() -> Json:
    """Return 200 if the process responds."""
    return Json({"status": "ok"})


@router.get("/readyz", response_model=dict[str, str])
async def readyz(request: Request) -> Response:
    """Return 200 if database, broker and a worker are ready; otherwise 503 with what is missing."""
    missing_parts = await to_thread.run_sync(
        _missing_parts, get_lab(request), request.app.state.status, limiter=LOOKERS
    )
    if missing_parts:
        return problem(503, "Not ready", "; ".join(missing_parts), headers={"Retry-After": "5"})
    return Json({"status": "ready"})


def _missing_parts(lab: Lab, status: Status) -> list[str]:
    components = status.read_states()
    missing_parts = [
        components[name]["detail"] for name in ("database", "broker") if components[name]["state"] != "ok"
    ]
    if components["database"]["state"] == "ok":
        with open_read_session(lab.sessions) as session:
            missing_parts += [] if live_slots(session) else ["no worker is running"]
    return missing_parts


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Return Prometheus metrics: queue, runs, leases, recording, workers, request times, and this process."""
    content = await to_thread.run_sync(_scrape, request, limiter=LOOKERS)
    return Response(content, media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _scrape(request: Request) -> bytes:
    state = request.app.state
    gauge_values = {
        "grpolab_streams": float(state.broadcaster.listeners),
        "grpolab_reconciler_age_seconds": state.reconciler.age_seconds,
    }
    registry = CollectorRegistry()
    versions = (request.app.version, newest_schema())
    registry.register(Gauges(get_lab(request), gauge_values, state.status.read_states(), versions))
    ProcessCollector(registry=registry)
    return generate_latest(registry) + generate_latest(REQUESTS)
