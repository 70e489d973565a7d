"""Tests of timeouts: how long a client waits for the first byte of a response."""

import asyncio
import threading

import anyio
import anyio.to_thread
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from backend.http import timeout
from backend.http.problem_details import problem
from backend.http.timeout import RequestTimeout, take_time
from backend.storage import interruption
from backend.storage.engine import interrupter, open_read_session
from backend.storage.interruption import interruptible

TIMEOUT_SECONDS = 0.2


def test_a_route_that_does_not_answer_in_time_gets_a_timeout_response(monkeypatch):
    reported = threading.Event()

    def report_problem(*arguments, **options):
        reported.set()
        return problem(*arguments, **options)

    async def answer(scope, receive, send):
        await asyncio.to_thread(reported.wait, 60)
        await PlainTextResponse("done")(scope, receive, send)

    monkeypatch.setattr(timeout, "problem", report_problem)
    response = TestClient(RequestTimeout(answer, seconds=TIMEOUT_SECONDS)).get("/")
    assert response.status_code == 503
    assert response.json()["detail"].startswith("there was no answer within 0.2 s;")


def test_a_route_may_override_the_timeout():
    async def answer(scope, receive, send):
        take_time(60)
        await asyncio.sleep(2)
        await PlainTextResponse("done")(scope, receive, send)

    response = TestClient(RequestTimeout(answer, seconds=1)).get("/")
    assert (response.status_code, response.text) == (200, "done")


SLOW_QUERY = text(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000) "
    "SELECT max(i) FROM n"
)
"""A query that keeps a database busy for hours."""


def counting_route(database, query_began, query_ended):
    """Return a route that runs the slow query in a thread, as routes do."""

    def count():
        with open_read_session(database.sessions) as session, interruptible(interrupter(session)):
            query_began.set()
            try:
                session.execute(SLOW_QUERY)
            except OperationalError:
                query_ended.set()

    async def answer(scope, receive, send):
        await anyio.to_thread.run_sync(count)

    return answer


def test_the_query_of_a_request_ends_at_its_timeout(database):
    query_began, query_ended = threading.Event(), threading.Event()
    with database.engine.connect():
        response = TestClient(
            RequestTimeout(counting_route(database, query_began, query_ended), seconds=TIMEOUT_SECONDS)
        ).get("/")
    assert (response.status_code, query_began.is_set(), query_ended.wait(30)) == (503, True, True)


def test_the_query_of_a_disconnected_client_ends(database):
    query_began, query_ended = threading.Event(), threading.Event()

    async def receive():
        await anyio.to_thread.run_sync(query_began.wait)
        return {"type": "http.disconnect"}

    async def send(_message):
        raise AssertionError("nobody is there")

    scope = {"type": "http", "method": "GET", "path": "/"}
    asyncio.run(
        RequestTimeout(counting_route(database, query_began, query_ended), seconds=600)(scope, receive, send)
    )
    assert query_ended.is_set()


def test_a_statement_that_begins_after_the_interruption_is_interrupted():
    interruptions, wait = threading.Semaphore(0), interruption.ClientWait(600)
    token = interruption.current_wait.set(wait)
    try:
        with interruption.interruptible(interruptions.release):
            wait.end()
            assert all(interruptions.acquire(timeout=30) for _ in range(3))
    finally:
        interruption.current_wait.reset(token)
