"""A limit to how long a client waits: an ASGI wrapper around the routes."""

import asyncio
import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.problem import problem

logger = logging.getLogger(__name__)

SECONDS = 15.0
"""From the last piece of the request to the first of the answer. A stream may go on as long as it likes."""

DETAIL = (
    f"there was no answer within {SECONDS:.0f} s; the request may still be carried out: "
    "look whether it was, before you try again"
)


class Deadline:
    """Answers 503 in place of a route that does not; the route itself is left to come to its end."""

    def __init__(self, app: ASGIApp, *, seconds: float = SECONDS) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        heard_at = time.monotonic()
        is_answered = is_late = False

        async def receiving() -> Message:
            nonlocal heard_at
            message = await receive()
            heard_at = time.monotonic()
            return message

        async def sending(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            if not is_late:
                await send(message)

        work = asyncio.ensure_future(self._app(scope, receiving, sending))
        try:
            while not (is_answered or work.done()):
                left = heard_at + self._seconds - time.monotonic()
                if left <= 0:
                    is_late = True
                    break
                await asyncio.wait({work}, timeout=min(left, 1.0))
            if is_late:
                logger.warning("no answer within %g s: %s %s", self._seconds, scope["method"], scope["path"])
                answer = problem(503, "Service Unavailable", DETAIL, headers={"Retry-After": "5"})
                await answer(scope, receive, send)
            await work
        finally:
            work.cancel()
