"""Server-sent events that report changes in the database to all open pages within a tenth of a second.

One task per process polls the database for all listeners, so that a hundred pages cost one query. The id of a
message is `<last event>.<newest change of a run, in microseconds>`, with which any process can continue a
stream, also after a restart. Events arrive in the order of their ids and exactly once, even after a
disconnect. The messages `run` and `points` contain the current state and may be repeated. A page that has
missed too much receives `reset` and must reload its data.

run    a run as in lists           points  {"run", "step"}: fetch /series?after=<step> event  a line of a
run's history   worker  {"id", "status", "run"} reset  {}: too much was missed
"""

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Header, Query, Request
from starlette.responses import StreamingResponse

from backend.base.errors import TooMany, Unavailable
from backend.http.dependencies import SettingsOf
from backend.http.routing import Router
from backend.service.live.broadcaster import Broadcaster

router = Router(prefix="/api/v1", tags=["live"])

MAX_LISTENERS = 200


def end_streams_at_signals(broadcaster: Broadcaster) -> None:
    """End open streams when the server is asked to stop, because it waits for them."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        server_handler = signal.getsignal(number)
        if callable(server_handler):
            signal.signal(number, _closing_first(broadcaster, loop, server_handler))


def _closing_first(
    broadcaster: Broadcaster, loop: asyncio.AbstractEventLoop, servers_own: Callable[[int, Any], Any]
) -> Callable[[int, Any], None]:
    def on_signal(number: int, frame: Any) -> None:
        loop.call_soon_threadsafe(broadcaster.close)
        servers_own(number, frame)

    return on_signal


async def _count_stream(
    chunks: AsyncGenerator[bytes], streams: Counter[str], role: str
) -> AsyncIterator[bytes]:
    """Yield the chunks of a stream, counting it as open for its role."""
    streams[role] += 1
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk
    finally:
        streams[role] -= 1


@router.get("/stream", response_class=StreamingResponse)
async def stream(
    request: Request,
    settings: SettingsOf,
    last_event_id: Annotated[str, Query(max_length=100)] = "",
    header: Annotated[str, Header(alias="Last-Event-ID", max_length=100)] = "",
) -> StreamingResponse:
    """Stream changes as they happen, after `Last-Event-ID` (or the parameter `last_event_id`)."""
    broadcaster: Broadcaster = request.app.state.broadcaster
    streams: Counter[str] = request.app.state.streams
    limit, role = settings.streams_per_token, request.state.role
    if limit and streams[role] >= limit:
        raise TooMany(f"{limit} live pages of {role}s are open already: close some")
    if broadcaster.listeners >= MAX_LISTENERS:
        raise Unavailable(f"{MAX_LISTENERS} live pages are open already: close some")
    return StreamingResponse(
        _count_stream(broadcaster.listen(header or last_event_id), streams, role),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )
