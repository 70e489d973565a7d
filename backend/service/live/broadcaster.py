"""The broadcaster: a task per process that polls the database for changes and sends them to all streams."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from fastapi.concurrency import run_in_threadpool
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from backend.service.live.changes import (
    CLOCK_SLACK_SECONDS,
    Message,
    Position,
    changes_after,
    events_after,
    load_runs,
    make_messages,
    newest_position,
    parse_position,
    settled_position,
)
from backend.storage.engine import Sessions, open_read_session
from backend.storage.models import Worker

logger = logging.getLogger(__name__)

PEEK_SECONDS = 0.03
"""Seconds between two polls for changes."""

LOOK_SECONDS = 0.25
"""Seconds between two full polls, which include workers and changes that became visible late."""

FINGERPRINT_SECONDS = 5.0
"""Seconds between two checks for changed tokens."""

KEEPALIVE_SECONDS = 15.0

STREAM_SECONDS = 3600.0

MAX_QUEUED = 5000
"""Maximum number of messages queued for a page that does not read; its stream ends then."""

MAX_MISSED = 5000
"""Maximum number of events that are sent one by one to a page that reconnects."""

MAX_RUNS = MAX_QUEUED // 2
"""Maximum number of changed runs that are sent one by one; each may need two messages."""

PAGE_SIZE = 100
"""Number of events that are fetched at a time, which limits memory if many pages reconnect at once."""


class Parcel(NamedTuple):
    """An encoded message for all listeners."""

    content: bytes
    event: int
    """Last event that the message covers; -1 for a message without a position in the stream."""
    is_event: bool
    """Whether the message reports that event; other messages may be sent twice."""

    def is_known(self, last_event: int) -> bool:
        """Return whether a page that has received the events up to `last_event` must not receive this
        message.
        """
        return 0 <= self.event < last_event or (self.is_event and self.event == last_event)


Queue = asyncio.Queue[Parcel | None]


class MissedMessages(NamedTuple):
    """A part of the messages that a stream has missed."""

    content: bytes
    """Encoded messages in the format in which they are sent."""
    position: Position
    """Position after the last message."""
    is_all: bool


class Broadcaster:
    """Polls the database while there are listeners, and sends the changes to all of them.

    `fingerprint` changes when the tokens change; all streams end then, and authorised pages reconnect.
    """

    def __init__(self, sessions: Sessions, fingerprint: Callable[[], object] = bool) -> None:
        self._sessions = sessions
        self._fingerprint = fingerprint
        self._listeners: set[Queue] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_following = asyncio.Event()
        self._is_closing = False
        self._place = Position(0, 0.0)
        self._told: dict[str, float] = {}
        """Time of the last change of each run, for changes within the overlap."""
        self._steps: dict[str, int] = {}
        self._workers: dict[str, tuple[Any, ...]] = {}

    @property
    def listeners(self) -> int:
        """The number of open streams."""
        return len(self._listeners)

    def close(self) -> None:
        """End all streams."""
        self._is_closing = True
        self._end_all()
        if self._task is not None:
            self._task.cancel()

    def _end_all(self) -> None:
        for queue in list(self._listeners):
            self._drop(queue)

    async def listen(self, last_id: str) -> AsyncGenerator[bytes]:
        """Yield the stream of a page, starting at its last position."""
        queue: Queue = asyncio.Queue(MAX_QUEUED)
        self._listeners.add(queue)
        try:
            if self._task is None or self._task.done():
                self._is_following.clear()
                self._task = asyncio.create_task(self._poll())
            yield b": hello\n\n"
            await self._is_following.wait()  # later changes reach the queue
            backlog = await run_in_threadpool(self._load_missed, parse_position(last_id))
            while backlog.content and not self._is_closing:
                yield backlog.content
                if backlog.is_all:
                    break
                backlog = await run_in_threadpool(self._load_missed, backlog.position)
            async for content in self._follow(queue, backlog.position.event):
                yield content
        except SQLAlchemyError as error:
            logger.warning("a stream ends: %s", str(error).splitlines()[0])
        finally:
            self._listeners.discard(queue)

    async def _follow(self, queue: Queue, last_event: int) -> AsyncIterator[bytes]:
        ends_at = time.monotonic() + STREAM_SECONDS
        while not self._is_closing and time.monotonic() < ends_at:
            try:
                parcels = [await asyncio.wait_for(queue.get(), KEEPALIVE_SECONDS)]
            except TimeoutError:
                yield b": still here\n\n"
                continue
            while not queue.empty():  # slow readers get all queued messages at once
                parcels.append(queue.get_nowait())
            delivered_parcels = [parcel for parcel in parcels if parcel is not None]
            if content := b"".join(
                parcel.content for parcel in delivered_parcels if not parcel.is_known(last_event)
            ):
                yield content
            if None in parcels:
                return

    def _load_missed(self, position: Position | None) -> MissedMessages:
        with open_read_session(self._sessions) as session:
            if position is None:
                return _first_message(session, "hello")
            newest = newest_position(session)
            events = events_after(session, position.event, PAGE_SIZE)
            changed_runs = changes_after(session, position.changed, limit=MAX_RUNS + 1)
            # unknown if it is too old, from another database, or from before the clock was set back
            is_known = (
                0 <= newest.event - position.event <= MAX_MISSED
                and position.changed <= newest.changed + CLOCK_SLACK_SECONDS
            )
            if not is_known or len(changed_runs) > MAX_RUNS:
                return _first_message(session, "reset")
            is_all = len(events) < PAGE_SIZE
            runs = load_runs(session, list(changed_runs)) if is_all else ()
            messages = list(make_messages(events, runs, position, {}))
        content = b"".join(message.encode() for message in messages)
        return MissedMessages(content, _position_after(messages, position), is_all)

    async def _poll(self) -> None:
        try:
            tokens = await run_in_threadpool(self._fingerprint)
            while self._listeners and tokens == await run_in_threadpool(self._fingerprint):
                await self._follow_for_a_while()
        finally:  # all listeners reconnect
            self._end_all()
            self._is_following.set()

    async def _follow_for_a_while(self) -> None:
        ends_at, looked_at = time.monotonic() + FINGERPRINT_SECONDS, 0.0
        while self._listeners and time.monotonic() < ends_at:
            try:
                if not self._is_following.is_set():
                    await run_in_threadpool(self._start_polling)
                    self._is_following.set()
                is_due = time.monotonic() - looked_at > LOOK_SECONDS
                if is_due or await run_in_threadpool(self._has_changes):
                    looked_at = time.monotonic()
                    if (parcels := await run_in_threadpool(self._load_changes)) is None:
                        self._is_following.clear()  # the next iteration starts from scratch
                        self._end_all()
                    else:
                        self._send(parcels)
            except SQLAlchemyError as error:
                logger.warning("cannot follow the runs: %s", str(error).splitlines()[0])
                await asyncio.sleep(LOOK_SECONDS)
            await asyncio.sleep(PEEK_SECONDS)

    def _send(self, parcels: Sequence[Parcel]) -> None:
        for parcel in parcels:
            for queue in list(self._listeners):
                try:
                    queue.put_nowait(parcel)
                except asyncio.QueueFull:
                    self._drop(queue)

    def _drop(self, queue: Queue) -> None:
        """End a stream, so that its client reconnects with its last id."""
        self._listeners.discard(queue)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)

    def _start_polling(self) -> None:
        with open_read_session(self._sessions) as session:
            self._place = settled_position(session)
            self._told = changes_after(session, self._place.changed)
            self._workers = {worker.id: _worker_state(worker) for worker in session.scalars(select(Worker))}

    def _has_changes(self) -> bool:
        with open_read_session(self._sessions) as session:
            return newest_position(session) != self._place

    def _load_changes(self) -> list[Parcel] | None:
        """Return the changes since the last poll; None if too many runs have changed to report them one by
        one.
        """
        with open_read_session(self._sessions) as session:
            newest = newest_position(session).changed  # lower than before if the clock was set back
            self._place = self._place._replace(changed=min(self._place.changed, newest))
            events = events_after(session, self._place.event, PAGE_SIZE)
            changed_at = changes_after(session, self._place.changed)
            changed_runs = [run for run, timestamp in changed_at.items() if self._told.get(run) != timestamp]
            if len(changed_runs) > MAX_RUNS:
                return None
            runs = load_runs(session, changed_runs)
            workers = session.scalars(select(Worker).order_by(Worker.id)).all()
        messages = list(make_messages(events, runs, self._place, self._steps))
        self._place = _position_after(messages, self._place)
        self._told = changed_at
        changed_workers = [
            worker for worker in workers if self._workers.get(worker.id) != _worker_state(worker)
        ]
        self._workers = {worker.id: _worker_state(worker) for worker in workers}
        messages += [Message("worker", _worker_json(worker)) for worker in changed_workers]
        return [
            Parcel(
                message.encode(), message.position.event if message.position else -1, message.kind == "event"
            )
            for message in messages
        ]


def _first_message(session: Session, kind: str) -> MissedMessages:
    """Return the first message for a page that does not resume a stream."""
    position = settled_position(session)
    return MissedMessages(Message(kind, {}, position).encode(), position, is_all=True)


def _position_after(messages: Sequence[Message], position: Position) -> Position:
    """Return the position after the messages, or `position` if there are none."""
    return (messages[-1].position if messages else None) or position


def _worker_state(worker: Worker) -> tuple[Any, ...]:
    return worker.status, worker.run_id


def _worker_json(worker: Worker) -> dict[str, Any]:
    return {"id": worker.id, "status": worker.status, "run": worker.run_id}
