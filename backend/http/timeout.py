"""Request timeouts: an ASGI wrapper that answers 503 in time and ends work that nobody waits for.

What a request reads from the database is interrupted when its time is over or its client gone. What it writes
comes to its end.
"""

import asyncio
import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.http.problem_details import problem
from backend.storage.interruption import Wait, current

logger = logging.getLogger(__name__)

SECONDS = 15.0
"""From the last piece of the request to the first of the answer. A stream may go on as long as it likes."""

TURN_SECONDS = 1.0
"""How often the time that is left is looked at."""

DETAIL = "there was no answer within {:g} s; the request may still be carried out: check before you try again"


def take_time(seconds: float) -> None:
    """The request that is being answered may take so long from here, whatever is usual."""
    wait = current.get(None)
    if wait is not None:
        wait.heard_at, wait.seconds = time.monotonic(), seconds


class RequestTimeout:
    """Answers 503 in place of a route that does not; the route itself comes to its end, its reads at once."""

    def __init__(self, app: ASGIApp, *, seconds: float = SECONDS) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        wait = Wait(self._seconds)
        current.set(wait)
        is_late, answered = False, asyncio.Event()

        heard: asyncio.Queue[Message] = asyncio.Queue()

        async def listen() -> None:
            """Read until the client is gone: a route that computes would not ask."""
            while True:
                message = await receive()
                wait.heard_at = time.monotonic()
                heard.put_nowait(message)
                if message["type"] == "http.disconnect":
                    wait.is_over = True
                    return await asyncio.to_thread(wait.end) if wait.interrupts else None

        async def receiving() -> Message:
            message = await (heard.get() if is_read else receive())
            wait.heard_at = time.monotonic()
            if message["type"] == "http.disconnect":
                heard.put_nowait(message)  # it stays gone
            return message

        async def sending(message: Message) -> None:
            answered.set()
            if not is_late:
                await send(message)

        is_read = scope["method"] in ("GET", "HEAD")
        listening = [asyncio.ensure_future(listen())] if is_read else []
        work = asyncio.ensure_future(self._app(scope, receiving, sending))
        try:
            is_late = await _is_late(wait, work, answered)
            if is_late:
                await asyncio.to_thread(wait.end)
                logger.warning("no answer within %g s: %s %s", wait.seconds, scope["method"], scope["path"])
                detail = DETAIL.format(wait.seconds)
                answer = problem(503, "Service Unavailable", detail, headers={"Retry-After": "5"})
                await answer(scope, receive, send)
            await work
        finally:
            work.cancel()
            for task in listening:
                task.cancel()


async def _is_late(wait: Wait, work: "asyncio.Future[None]", answered: asyncio.Event) -> bool:
    """Whether the client's time is over before the first piece of an answer.

    Time in which the whole process stood still (a suspended or starved machine) is not the route's: of each
    turn of the loop at most twice what it meant to wait counts.
    """
    stood_still = 0.0
    while not (answered.is_set() or work.done()):
        left = wait.heard_at + wait.seconds + stood_still - time.monotonic()
        if left <= 0:
            return True
        turn, began = min(left, TURN_SECONDS), time.monotonic()
        await asyncio.wait({work}, timeout=turn)
        stood_still += max(0.0, time.monotonic() - began - 2 * turn)
    return False
