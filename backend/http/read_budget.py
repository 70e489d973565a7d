"""Read budget: limits the number of concurrent expensive reads per role.

Curves and rollouts need memory and processor time; an export occupies a thread until its client has read it.
Additional requests wait for a free slot, and are then refused with a time to retry. Reads and exports have
separate slots.
"""

import asyncio
import re
from collections import defaultdict

from starlette.types import ASGIApp, Receive, Scope, Send

from backend.http.limits import too_many

EXPORT_PATTERN = re.compile(
    r"/api/v1/runs/[^/]+/(metrics\.csv|archive|model)|/api/v1/rollouts/(steps|search/export|prompts\.jsonl)"
)
READ_PATTERN = re.compile(
    r"/api/v1/(series|matrix|signal-budget)|/api/v1/runs/[^/]+/(diagnosis|breakdown)|/api/v1/rollouts(/.+)?"
)

WHAT_IF = "/api/v1/rollouts/what-if"
"""Path of a POST route that changes nothing, but reads a complete step."""

MAX_WAIT_SECONDS = 10.0
"""Maximum number of seconds that a request waits for a slot."""


class ReadBudget:
    """ASGI wrapper that limits the number of concurrent expensive reads; 0 means no limit."""

    def __init__(self, app: ASGIApp, *, limit: int) -> None:
        self._app = app
        self._limit = limit
        self._places: defaultdict[tuple[str, str], asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(limit)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = _read_kind(scope) if self._limit else ""
        if not kind:
            return await self._app(scope, receive, send)
        slots = self._places[str(scope.get("state", {}).get("role")), kind]
        try:
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                await slots.acquire()
        except TimeoutError:
            return await too_many(f"{kind} at once", MAX_WAIT_SECONDS)(scope, receive, send)
        try:
            return await self._app(scope, receive, send)
        finally:
            slots.release()


def _read_kind(scope: Scope) -> str:
    """Return a description of the kind of expensive read; empty for a cheap request."""
    if scope["type"] != "http" or (scope["method"] != "GET" and scope["path"] != WHAT_IF):
        return ""
    if EXPORT_PATTERN.fullmatch(scope["path"]):
        return "exports"
    return "curves and rollouts" if READ_PATTERN.fullmatch(scope["path"]) else ""
