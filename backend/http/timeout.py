"""Request timeouts: an ASGI wrapper that responds with 503 in time and ends abandoned work.

Database reads of a request are interrupted when its time is over or its client has disconnected. Writes are
completed.
"""

import asyncio
import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.http.problem_details import problem
from backend.storage.interruption import ClientWait, current_wait

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 15.0
"""Time limit in seconds from the end of the request to the start of the response; streams may last longer."""

CHECK_INTERVAL_SECONDS = 1.0
"""Seconds between two checks of the remaining time."""

DETAIL = "there was no answer within {:g} s; the request may still be carried out: check before you try again"


def take_time(seconds: float) -> None:
    """Set the time limit of the current request to `seconds` from now."""
    wait = current_wait.get(None)
    if wait is not None:
        wait.heard_at, wait.seconds = time.monotonic(), seconds


class RequestTimeout:
    """ASGI wrapper that responds with 503 for a late route and interrupts its database reads."""

    def __init__(self, app: ASGIApp, *, seconds: float = TIMEOUT_SECONDS) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        wait = ClientWait(self._seconds)
        current_wait.set(wait)
        is_late, has_answered = False, asyncio.Event()

        messages: asyncio.Queue[Message] = asyncio.Queue()

        async def listen() -> None:
            """Receive until the client disconnects, because a busy route does not."""
            while True:
                message = await receive()
                wait.heard_at = time.monotonic()
                messages.put_nowait(message)
                if message["type"] == "http.disconnect":
                    wait.is_over = True
                    return await asyncio.to_thread(wait.end) if wait.interrupts else None

        async def receiving() -> Message:
            message = await (messages.get() if is_read else receive())
            wait.heard_at = time.monotonic()
            if message["type"] == "http.disconnect":
                messages.put_nowait(message)  # later calls receive the message, too
            return message

        async def sending(message: Message) -> None:
            has_answered.set()
            if not is_late:
                await send(message)

        is_read = scope["method"] in ("GET", "HEAD")
        listener_tasks = [asyncio.ensure_future(listen())] if is_read else []
        request_task = asyncio.ensure_future(self._app(scope, receiving, sending))
        try:
            is_late = await _is_late(wait, request_task, has_answered)
            if is_late:
                await asyncio.to_thread(wait.end)
                logger.warning("no answer within %g s: %s %s", wait.seconds, scope["method"], scope["path"])
                detail = DETAIL.format(wait.seconds)
                answer = problem(503, "Service Unavailable", detail, headers={"Retry-After": "5"})
                await answer(scope, receive, send)
            await request_task
        finally:
            request_task.cancel()
            for task in listener_tasks:
                task.cancel()


async def _is_late(
    wait: ClientWait, request_task: "asyncio.Future[None]", has_answered: asyncio.Event
) -> bool:
    """Return whether the time limit passes before the response starts.

    Time in which the process was suspended or starved does not count: each iteration counts at most twice its
    intended duration.
    """
    suspended_seconds = 0.0
    while not (has_answered.is_set() or request_task.done()):
        remaining_seconds = wait.heard_at + wait.seconds + suspended_seconds - time.monotonic()
        if remaining_seconds <= 0:
            return True
        wait_seconds, started_at = min(remaining_seconds, CHECK_INTERVAL_SECONDS), time.monotonic()
        await asyncio.wait({request_task}, timeout=wait_seconds)
        suspended_seconds += max(0.0, time.monotonic() - started_at - 2 * wait_seconds)
    return False
