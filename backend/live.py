"""Server-sent events: what changed in SQL, within a quarter of a second, to every open page.

One task per process asks SQL for all listeners together, so a hundred pages cost one query. An event's id
is `<newest event>.<newest change of a run, in microseconds>`: with it any process can continue a stream
from SQL, also after a restart. Whoever missed too much is told to `reset` and fetches what it shows anew.

    run      a run as in lists            points   {"run", "step"}: fetch /series?after=<step>
    event    a line of a run's history    worker   {"id", "status", "run"}
    reset    {}: too much was missed
"""

import asyncio
import logging
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from starlette.responses import StreamingResponse

from backend.answers import Json
from backend.database import Sessions, reading
from backend.errors import Unavailable
from backend.models import Event, Run, Worker
from backend.problem import ERRORS
from backend.runs.api import shown_event
from backend.runs.list import run_columns
from backend.runs.store import shown_run

logger = logging.getLogger(__name__)

router = APIRouter(prefix="/api/v1", tags=["live"], responses=ERRORS)

POLL_SECONDS = 0.25
KEEPALIVE_SECONDS = 15.0
STREAM_SECONDS = 3600.0
MOST_LISTENERS = 200
MOST_WAITING = 4000
MOST_MISSED = 5000

EVENT_OVERLAP = 50
TIME_OVERLAP = 2.0
"""Transactions become visible out of order: a little of the past is looked at again."""


class Place(NamedTuple):
    """How far a stream has come."""

    event: int
    changed: float
    """`run.changed_at` of the newest change."""

    def write(self) -> str:
        """The `id` of a message."""
        return f"{self.event}.{int(self.changed * 1e6)}"


def read_place(text: str) -> Place | None:
    """What `Place.write` wrote; None for anything else."""
    event, dot, changed = text.partition(".")
    if not (text.isascii() and dot and event.isdecimal() and changed.isdecimal() and len(text) <= 34):
        return None
    return Place(min(int(event), 2**62), int(changed) / 1e6)


class Message(NamedTuple):
    """One server-sent event."""

    kind: str
    data: Any
    place: str = ""

    def encode(self) -> bytes:
        """As it goes over the wire."""
        head = f"id: {self.place}\n" if self.place else ""
        return f"{head}event: {self.kind}\ndata: ".encode() + Json(self.data).body + b"\n\n"


class Changes(NamedTuple):
    """What a look into SQL has found."""

    events: Sequence[Event]
    runs: Sequence[Any]
    workers: Sequence[Worker]


def current_place(session: Session) -> Place:
    """Where a stream begins that resumes nothing."""
    newest = session.scalar(select(func.max(Event.id))) or 0
    return Place(newest, session.scalar(select(func.max(Run.changed_at))) or 0.0)


def changes_since(session: Session, place: Place) -> Changes:
    """Events and runs behind a place, oldest first, and all workers."""
    events = select(Event).where(Event.id > place.event).order_by(Event.id).limit(MOST_MISSED + 1)
    runs = run_columns().where(Run.changed_at > place.changed).order_by(Run.changed_at).limit(MOST_MISSED + 1)
    workers = select(Worker).order_by(Worker.id)
    return Changes(session.scalars(events).all(), session.execute(runs).all(), session.scalars(workers).all())


def messages_of(changes: Changes, steps: dict[str, int], place: str) -> list[Message]:
    """The messages about some changes; `steps` remembers the last step that was told of each run.

    Only the last one carries the place: a page that is cut off before has not come so far.
    """
    found = [Message("event", shown_event(event)) for event in changes.events]
    for row in changes.runs:
        found.append(Message("run", shown_run(row)))
        if steps.get(row.id) != row.last_step:
            steps[row.id] = row.last_step
            found.append(Message("points", {"run": row.id, "step": row.last_step}))
    return [*found[:-1], found[-1]._replace(place=place)] if found else []


class Broadcaster:
    """Asks SQL while anybody listens and tells all listeners."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._listeners: set[asyncio.Queue[Message | None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._place: Place | None = None
        self._seen: dict[Any, Any] = {}
        self._steps: dict[str, int] = {}
        self._workers: dict[str, tuple[Any, ...]] = {}

    @property
    def listeners(self) -> int:
        """How many streams are open."""
        return len(self._listeners)

    def close(self) -> None:
        """End all streams."""
        self._is_closing = True
        for queue in self._listeners:
            _offer(queue, None)
        if self._task is not None:
            self._task.cancel()

    async def listen(self, last_id: str) -> AsyncIterator[bytes]:
        """The stream of one page, from where it left off."""
        queue: asyncio.Queue[Message | None] = asyncio.Queue(MOST_WAITING)
        self._listeners.add(queue)
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._poll())
            yield b": hello\n\n"
            for message in await run_in_threadpool(self._missed, last_id):
                yield message.encode()
            async for chunk in self._follow(queue):
                yield chunk
        finally:
            self._listeners.discard(queue)

    async def _follow(self, queue: "asyncio.Queue[Message | None]") -> AsyncIterator[bytes]:
        ends_at = time.monotonic() + STREAM_SECONDS
        while not self._is_closing and time.monotonic() < ends_at:
            try:
                message = await asyncio.wait_for(queue.get(), KEEPALIVE_SECONDS)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            if message is None:
                return
            yield message.encode()

    def _missed(self, last_id: str) -> list[Message]:
        with reading(self._sessions) as session:
            now = current_place(session)
            place = read_place(last_id)
            if place is None:
                return [Message("hello", {}, now.write())]
            changes = changes_since(session, place)
        if max(len(changes.events), len(changes.runs)) > MOST_MISSED:
            return [Message("reset", {}, now.write())]
        return messages_of(changes, {}, now.write())

    async def _poll(self) -> None:
        self._place = None
        while self._listeners and not self._is_closing:
            try:
                for message in await run_in_threadpool(self._look):
                    self._tell(message)
            except SQLAlchemyError as error:
                logger.warning("cannot follow the runs: %s", str(error).splitlines()[0])
            await asyncio.sleep(POLL_SECONDS)

    def _tell(self, message: Message) -> None:
        for queue in list(self._listeners):
            if not _offer(queue, message):
                # It does not read: it comes back with its last id.
                self._listeners.discard(queue)
                while not queue.empty():
                    queue.get_nowait()
                _offer(queue, None)

    def _look(self) -> list[Message]:
        with reading(self._sessions) as session:
            if self._place is None:
                self._place = current_place(session)
                back = Place(self._place.event - EVENT_OVERLAP, self._place.changed - TIME_OVERLAP)
                self._remember(changes_since(session, back))
                return []
            back = Place(self._place.event - EVENT_OVERLAP, self._place.changed - TIME_OVERLAP)
            found = changes_since(session, back)
        fresh = self._remember(found)
        messages = messages_of(fresh, self._steps, self._place.write())
        return messages + [Message("worker", _shown_worker(worker)) for worker in fresh.workers]

    def _remember(self, found: Changes) -> Changes:
        """What of it is new; the memory reaches as far back as the looks do."""
        events = [event for event in found.events if ("event", event.id) not in self._seen]
        runs = [row for row in found.runs if self._seen.get(("run", row.id)) != row.changed_at]
        self._seen = {("event", event.id): True for event in found.events}
        self._seen |= {("run", row.id): row.changed_at for row in found.runs}
        states = {worker.id: (worker.status, worker.run_id) for worker in found.workers}
        workers = [worker for worker in found.workers if self._workers.get(worker.id) != states[worker.id]]
        self._workers = states
        place = self._place or Place(0, 0.0)
        newest = max([place.changed, *(row.changed_at for row in found.runs)])
        self._place = Place(max([place.event, *(event.id for event in found.events)]), newest)
        return Changes(events, runs, workers)


def end_streams_at_signals(broadcaster: Broadcaster) -> None:
    """The server waits for open streams before it ends: end them as soon as it is asked to."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        servers_own = signal.getsignal(number)
        if callable(servers_own):
            signal.signal(number, _closing_first(broadcaster, loop, servers_own))


def _closing_first(
    broadcaster: Broadcaster, loop: asyncio.AbstractEventLoop, servers_own: Callable[[int, Any], Any]
) -> Callable[[int, Any], None]:
    def on_signal(number: int, frame: Any) -> None:
        loop.call_soon_threadsafe(broadcaster.close)
        servers_own(number, frame)

    return on_signal


def _offer(queue: "asyncio.Queue[Message | None]", message: Message | None) -> bool:
    try:
        queue.put_nowait(message)
    except asyncio.QueueFull:
        return False
    return True


def _shown_worker(worker: Worker) -> dict[str, Any]:
    return {"id": worker.id, "status": worker.status, "run": worker.run_id}


@router.get("/stream", response_class=StreamingResponse)
async def stream(
    request: Request,
    last_event_id: Annotated[str, Query(max_length=100)] = "",
    header: Annotated[str, Header(alias="Last-Event-ID", max_length=100)] = "",
) -> StreamingResponse:
    """Changes as they happen; resumes behind `Last-Event-ID` (or the parameter `last_event_id`)."""
    broadcaster: Broadcaster = request.app.state.broadcaster
    if broadcaster.listeners >= MOST_LISTENERS:
        raise Unavailable(f"{MOST_LISTENERS} pages follow already: close some")
    return StreamingResponse(
        broadcaster.listen(header or last_event_id),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )
