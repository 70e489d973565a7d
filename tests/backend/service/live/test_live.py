"""Tests of the stream of changes, read without a browser."""

import asyncio
import json
from contextlib import closing
from typing import cast

import pytest
from sqlalchemy import update

from backend.runs import leases, lifecycle
from backend.runs.events import add_event
from backend.service.live.broadcaster import MAX_QUEUED, Broadcaster, Parcel
from backend.service.live.changes import GAP_SECONDS, events_after, parse_position
from backend.service.main import Service
from backend.storage.engine import open_engine, open_sessions
from backend.storage.models import Event, Run
from tests.api_client import VIEWER_TOKEN, client_of_service, close_connections
from tests.factories import make_run
from tests.waiting import wait_for


@pytest.fixture
def sessions(sqlite_url):
    engine = open_engine(sqlite_url)
    yield open_sessions(engine)
    close_connections(engine.pool)


def parse(chunk):
    fields = dict(
        line.split(": ", 1) for line in chunk.decode().splitlines() if not line.startswith(":") and line
    )
    return fields.get("event"), json.loads(fields.get("data", "null")), fields.get("id", "")


async def read_messages(stream):
    """Yield the messages of the stream one by one, although several may arrive together."""
    async for chunk in stream:
        for message in chunk.decode().split("\n\n")[:-1]:
            yield parse(message.encode())


async def read(broadcaster, last_id, count, *, then=lambda: None):
    """Return the first `count` messages of a stream, and call `then` once the stream is open."""
    events = []
    stream = read_messages(broadcaster.listen(last_id))
    try:
        async with asyncio.timeout(60):
            while len(events) < count:
                kind, payload, event_id = await anext(stream)
                if kind is None:
                    continue
                if kind == "hello":
                    then()
                events.append((kind, payload, event_id))
    finally:
        await stream.aclose()
    return events


def listen(sessions, last_id, count, **options):
    async def go():
        broadcaster = Broadcaster(sessions)
        try:
            return await read(broadcaster, last_id, count, **options)
        finally:
            broadcaster.close()

    return asyncio.run(go())


def test_a_claim_and_a_step_are_streamed_within_moments(sessions):
    with sessions.begin() as session:
        run = make_run(session)

    def claim_and_step():
        with sessions.begin() as session:
            lifecycle.claim_run(session, "w", "h")
            leases.fence(session, run.id, 1, last_step=3)

    hello, event, second_event, points = listen(sessions, "", 4, then=claim_and_step)
    assert hello[0] == "hello"
    assert (event[0], event[1]["data"]["to"]) == ("event", "running")
    assert (second_event[0], second_event[1]["status"], second_event[1]["summary"]) == (
        "run",
        "running",
        {"step": 0, "last": {}, "best": {}},
    )
    assert (points[0], points[1]) == ("points", {"run": run.id, "step": 3})
    assert {parse_position(message[2]).event for message in (event, second_event, points)} == {
        int(event[1]["id"])
    }


def test_a_stream_resumes_at_the_position_where_it_was_cut(sessions):
    with sessions.begin() as session:
        run = make_run(session)
        lifecycle.request_action(session, run.id, "pause")
    event_id = listen(sessions, "", 1)[0][2]
    with sessions.begin() as session:
        lifecycle.resume_run(session, run.id)
    event, next_event = listen(sessions, event_id, 2)
    assert (event[0], event[1]["data"]["to"]) == ("event", "queued")
    assert (next_event[0], next_event[1]["id"]) == ("run", run.id)


def test_a_client_that_missed_too_much_is_told_to_reload(sessions, monkeypatch):
    monkeypatch.setattr("backend.service.live.broadcaster.MAX_RUNS", 3)
    with sessions.begin() as session:
        for _ in range(5):
            make_run(session)
    assert listen(sessions, "0.0", 1)[0][0] == "reset"


def test_after_too_many_changes_pages_reload_and_the_stream_continues(sessions, monkeypatch):
    monkeypatch.setattr("backend.service.live.broadcaster.MAX_RUNS", 3)
    with sessions.begin() as session:
        runs = [make_run(session).id for _ in range(5)]
    change = update(Run).where(Run.id.in_(runs))

    async def go():
        broadcaster = Broadcaster(sessions)
        try:
            stream = read_messages(broadcaster.listen(""))
            async with asyncio.timeout(60):
                kinds = [kind async for kind, _, _ in stream if kind and not archive()]
                age()
                messages_after = await read(broadcaster, "", 2, then=lambda: tag(runs[0]))
            return kinds, messages_after
        finally:
            broadcaster.close()

    def archive():
        with sessions.begin() as session:
            session.execute(change.values(archived_at=1.0))

    def age():
        with sessions.begin() as session:
            session.execute(change.values(changed_at=Run.changed_at - 60))

    def tag(run):
        with sessions.begin() as session:
            session.execute(update(Run).where(Run.id == run).values(tags=["old"]))

    kinds, messages_after = asyncio.run(go())
    assert set(kinds) <= {"hello", "reset"}  # its stream ended
    assert (messages_after[1][0], messages_after[1][1]["id"]) == ("run", runs[0])


def test_a_listener_that_does_not_read_is_dropped_and_others_continue(sessions):
    async def go():
        broadcaster = Broadcaster(sessions)
        slow_queue = asyncio.Queue(MAX_QUEUED)
        broadcaster._listeners.add(slow_queue)
        broadcaster._send([Parcel(b"", -1, False)] * (MAX_QUEUED + 1))
        return broadcaster.listeners, slow_queue.qsize(), slow_queue.get_nowait()

    assert asyncio.run(go()) == (0, 1, None)


def test_a_reconnecting_page_gets_many_events_once_and_in_order(sessions, monkeypatch):
    monkeypatch.setattr("backend.service.live.broadcaster.PAGE_SIZE", 3)
    with sessions.begin() as session:
        run = make_run(session)
        for number in range(10):
            add_event(session, "data", str(number), run_id=run.id)
    texts = [message[1]["message"] for message in listen(sessions, "0.0", 11) if message[0] == "event"]
    assert texts == [str(number) for number in range(10)]


def test_a_page_cut_off_within_a_batch_continues_after_the_last_message(sessions):
    with sessions.begin() as session:
        run = make_run(session)
        for number in range(5):
            add_event(session, "data", str(number), run_id=run.id)
    event_id = listen(sessions, "0.0", 2)[-1][2]
    assert listen(sessions, event_id, 1)[0][1]["message"] == "2"


def test_an_event_committed_during_a_reconnect_is_sent_once(sessions):
    """It may be in both the catch-up and the queue, and is sent once in any case."""
    with sessions.begin() as session:
        run = make_run(session)

    async def go():
        broadcaster, events = Broadcaster(sessions), []
        first = broadcaster.listen("")
        await anext(first)
        for number in range(20):
            with sessions.begin() as session:
                add_event(session, "data", str(number), run_id=run.id)
            stream = read_messages(broadcaster.listen(events[-1][2] if events else "0.0"))
            async with asyncio.timeout(60):
                while not events or events[-1][1].get("message") != str(number):
                    kind, payload, event_id = await anext(stream)
                    if kind == "event":
                        events.append((kind, payload, event_id))
            del stream
        broadcaster.close()
        return [payload["message"] for _, payload, _ in events]

    assert asyncio.run(go()) == [str(number) for number in range(20)]


def test_a_position_of_another_database_starts_again(sessions):
    assert listen(sessions, "1000.5", 1)[0][0] == "reset"


def test_new_tokens_end_all_streams(sessions, monkeypatch):
    monkeypatch.setattr("backend.service.live.broadcaster.FINGERPRINT_SECONDS", 0.1)
    tokens = ["old"]

    async def go():
        broadcaster = Broadcaster(sessions, lambda: tokens[0])
        stream = broadcaster.listen("")
        await anext(stream)
        await anext(stream)
        tokens[0] = "new"
        async with asyncio.timeout(60):
            return [chunk async for chunk in stream]

    assert asyncio.run(go()) == []


def test_an_id_that_may_still_be_committed_is_awaited(session):
    """Postgres assigns ids before it commits, while gaps in SQLite are deleted rows."""
    for number in (1, 2, 4):
        session.add(Event(id=number, kind="data", message=str(number), data={}))
    session.flush()
    assert [event.id for event in events_after(session, 0, 10)] == [1, 2]
    session.execute(update(Event).values(at=Event.at - GAP_SECONDS))
    assert [event.id for event in events_after(session, 0, 10)] == [1, 2, 4]
    session.execute(update(Event).values(at=Event.at + 3600))  # the clock has been set back since
    assert [event.id for event in events_after(session, 0, 10)] == [1, 2, 4]


@pytest.mark.parametrize("is_fresh", [True, False])
def test_a_page_that_connects_during_a_write_gets_both_events(postgres_url, is_fresh, monkeypatch):
    """The event with the smaller id is committed after the page connects, the other one before."""
    engine = open_engine(postgres_url)
    sessions = open_sessions(engine)
    monkeypatch.setattr("backend.service.live.changes.GAP_SECONDS", 600)
    load_calls, news = [], Broadcaster._load_changes

    def record_load(self):
        load_calls.append(self)
        return news(self)

    monkeypatch.setattr(Broadcaster, "_load_changes", record_load)

    async def go(earlier):
        with sessions.begin() as session:
            add_event(session, "data", "long ago")
        add_event(earlier, "data", "earlier")
        earlier.flush()
        with sessions.begin() as session:
            add_event(session, "data", "later")
        broadcaster = Broadcaster(sessions)
        first = read_messages(broadcaster.listen(""))
        async with asyncio.timeout(60):
            hello = await anext(first)
            hello = await anext(first) if hello[0] is None else hello
            stream = first if is_fresh else read_messages(broadcaster.listen(hello[2]))
            events_task = asyncio.create_task(_two_events(stream))
            look_count = len(load_calls)
            await asyncio.to_thread(wait_for, lambda: len(load_calls) >= look_count + 2)
            earlier.commit()
            messages = await events_task
        broadcaster.close()
        return messages

    with closing(sessions()) as earlier:
        messages = asyncio.run(go(earlier))
    close_connections(engine.pool)
    assert messages == ["earlier", "later"]


async def _two_events(stream):
    messages = []
    async for kind, payload, _ in stream:
        messages += [payload["message"]] if kind == "event" else []
        if len(messages) == 2:
            return messages
    return messages


@pytest.mark.parametrize("text", ["", "x", "1", "1.", ".5", "-1.0", "1.2.3", "٣.1", "9" * 50])
def test_an_invalid_id_starts_a_new_stream(text):
    assert parse_position(text) is None


def test_streams_per_token_are_limited(sqlite_url, settings):
    with client_of_service(settings.model_copy(update={"streams_per_token": 2}), sqlite_url) as client:
        cast("Service", client.app).state.streams.update(viewer=2, operator=1)
        rejected_response = client.get("/api/v1/stream", headers={"Authorization": f"Bearer {VIEWER_TOKEN}"})
        assert (rejected_response.status_code, rejected_response.headers["retry-after"]) == (429, "15")
        assert rejected_response.json()["detail"] == "2 live pages of viewers are open already: close some"
