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
from backend.storage.engine import interrupter, reading
from backend.storage.interruption import interruptible

BRIEF = 0.2


def test_a_route_that_does_not_answer_in_time_is_answered_for(monkeypatch):
    reported = threading.Event()

    def tell(*arguments, **options):
        reported.set()
        return problem(*arguments, **options)

    async def answer(scope, receive, send):
        await asyncio.to_thread(reported.wait, 60)
        await PlainTextResponse("done")(scope, receive, send)

    monkeypatch.setattr(timeout, "problem", tell)
    response = TestClient(RequestTimeout(answer, seconds=BRIEF)).get("/")
    assert response.status_code == 503
    assert response.json()["detail"].startswith("there was no answer within 0.2 s;")


def test_a_route_may_take_its_time():
    async def answer(scope, receive, send):
        take_time(60)
        await asyncio.sleep(2)
        await PlainTextResponse("done")(scope, receive, send)

    response = TestClient(RequestTimeout(answer, seconds=1)).get("/")
    assert (response.status_code, response.text) == (200, "done")


COUNT = text(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000) "
    "SELECT max(i) FROM n"
)
"""A query that keeps a database busy for hours."""


def counting(database, began, ended):
    """Return a route that runs the slow query in a thread, as routes do."""

    def count():
        with reading(database.sessions) as session, interruptible(interrupter(session)):
            began.set()
            try:
                session.execute(COUNT)
            except OperationalError:
                ended.set()

    async def answer(scope, receive, send):
        await anyio.to_thread.run_sync(count)

    return answer


def test_what_is_read_for_a_request_ends_with_its_time(database):
    began, ended = threading.Event(), threading.Event()
    with database.engine.connect():
        answer = TestClient(RequestTimeout(counting(database, began, ended), seconds=BRIEF)).get("/")
    assert (answer.status_code, began.is_set(), ended.wait(30)) == (503, True, True)


def test_what_is_read_for_a_client_that_goes_ends_too(database):
    began, ended = threading.Event(), threading.Event()

    async def receive():
        await anyio.to_thread.run_sync(began.wait)
        return {"type": "http.disconnect"}

    async def send(_message):
        raise AssertionError("nobody is there")

    scope = {"type": "http", "method": "GET", "path": "/"}
    asyncio.run(RequestTimeout(counting(database, began, ended), seconds=600)(scope, receive, send))
    assert ended.is_set()


def test_a_statement_that_begins_after_its_interruption_is_interrupted_again():
    heard, wait = threading.Semaphore(0), interruption.ClientWait(600)
    token = interruption.current_wait.set(wait)
    try:
        with interruption.interruptible(heard.release):
            wait.end()
            assert all(heard.acquire(timeout=30) for _ in range(3))
    finally:
        interruption.current_wait.reset(token)
