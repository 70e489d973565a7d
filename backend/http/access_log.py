"""Access log: the outermost ASGI wrapper assigns an id to each request and logs it."""

import logging
import re
import time
from uuid import uuid4

from prometheus_client import CollectorRegistry, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.base.logs import log_context

logger = logging.getLogger(__name__)

REQUESTS = CollectorRegistry()
_SECONDS = Histogram(
    "grpolab_http_request_duration_seconds",
    "Time to the first byte of an answer, by route template.",
    ["method", "route", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
    registry=REQUESTS,
)

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
"""Methods that are used as labels; other methods, and paths without a route, are labelled `other`."""

PROBES = {"/healthz", "/readyz", "/metrics", "/api/v1/status"}
"""Paths that are polled every few seconds; successful requests for them are not logged."""

REQUEST_ID_PATTERN = re.compile(r"[A-Za-z0-9._-]{8,64}")
"""Pattern of request ids that a proxy or client may set."""

NEVER_ANSWERED_STATUS = 499
"""Logged status of a request whose client disconnected before the response."""


class AccessLog:
    """ASGI wrapper that assigns an id to every request, measures its duration and logs it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client_id = Headers(scope=scope).get("x-request-id", "")
        request_id = client_id if REQUEST_ID_PATTERN.fullmatch(client_id) else uuid4().hex
        with log_context(request_id=request_id):
            await self._answer(scope, receive, send, request_id)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        started_at = time.perf_counter()
        status = NEVER_ANSWERED_STATUS

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
                method = scope["method"] if scope["method"] in METHODS else "other"
                route = getattr(scope.get("route"), "path", "other")
                _SECONDS.labels(method, route, status).observe(time.perf_counter() - started_at)
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception:
            logger.exception("unexpected error")
            if status == NEVER_ANSWERED_STATUS:
                raise
        finally:
            _write_line(scope["method"], scope["path"], status, time.perf_counter() - started_at)


def _write_line(method: str, path: str, status: int, seconds: float) -> None:
    """Log a request without the query string, which may contain a one-time ticket."""
    level = logging.DEBUG if path in PROBES and status < 400 else logging.INFO
    fields = {"method": method, "path": path, "status": status, "ms": round(seconds * 1000, 1)}
    logger.log(level, "%s %s %s %s ms", method, path, status, fields["ms"], extra=fields)
