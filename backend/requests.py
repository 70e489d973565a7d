"""How long requests take, by route: an ASGI wrapper around the routes."""

import time

from prometheus_client import CollectorRegistry, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUESTS = CollectorRegistry()
_SECONDS = Histogram(
    "grpolab_request_seconds",
    "Time to the first byte of an answer.",
    ["method", "route", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
    registry=REQUESTS,
)


class RequestTimes:
    """Measures every request; paths that belong to no route share one label."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started = time.perf_counter()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "other")
                taken = time.perf_counter() - started
                _SECONDS.labels(scope["method"], route, message["status"]).observe(taken)
            await send(message)

        return await self._app(scope, receive, sending)
