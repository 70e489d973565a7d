"""A limit to how long a client waits: an ASGI wrapper around the routes."""

import asyncio
import logging
import time
from contextvars import ContextVar
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.problem import problem

logger = logging.getLogger(__name__)

SECONDS = 15.0
"""From the last piece of the request to the first of the answer. A stream may go on as long as it likes."""

DETAIL = (
    "there was no answer within {:g} s; the request may still be carried out: "
    "look whether it was, before you try again"
)


@dataclass(slots=True)
class _Wait:
    """How long the client of one request waits."""

    seconds: float
    heard_at: float = field(default_factory=time.monotonic)


_wait: ContextVar[_Wait] = ContextVar("wait")


def take_time(seconds: float) -> None:
    """The request that is being answered may take so long from here, whatever is usual."""
    wait = _wait.get(None)
    if wait is not None:
        wait.heard_at, wait.seconds = time.monotonic(), seconds


class Deadline:
    """Answers 503 in place of a route that does not; the route itself is left to come to its end."""

    def __init__(self, app: ASGIApp, *, seconds: float = SECONDS) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        wait = _Wait(self._seconds)
        _wait.set(wait)
        is_answered = is_late = False

        async def receiving() -> Message:
            message = await receive()
            wait.heard_at = time.monotonic()
            return message

        async def sending(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            if not is_late:
                await send(message)

        work = asyncio.ensure_future(self._app(scope, receiving, sending))
        try:
            while not (is_answered or work.done()):
                left = wait.heard_at + wait.seconds - time.monotonic()
                if left <= 0:
                    is_late = True
                    break
                await asyncio.wait({work}, timeout=min(left, 1.0))
            if is_late:
                logger.warning("no answer within %g s: %s %s", wait.seconds, scope["method"], scope["path"])
                detail = DETAIL.format(wait.seconds)
                answer = problem(503, "Service Unavailable", detail, headers={"Retry-After": "5"})
                await answer(scope, receive, send)
            await work
        finally:
            work.cancel()
