"""How long a client waits for the first piece of an answer."""

import asyncio

from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from backend.deadline import Deadline, take_time

BRIEF = 0.2


def app(*, takes_time):
    async def answer(scope, receive, send):
        if takes_time:
            take_time(60)
        await asyncio.sleep(10 * BRIEF)
        await PlainTextResponse("done")(scope, receive, send)

    return TestClient(Deadline(answer, seconds=BRIEF))


def test_a_route_that_does_not_answer_in_time_is_answered_for():
    answer = app(takes_time=False).get("/")
    assert answer.status_code == 503
    assert answer.json()["detail"].startswith("there was no answer within 0.2 s;")


def test_a_route_may_take_its_time():
    answer = app(takes_time=True).get("/")
    assert (answer.status_code, answer.text) == (200, "done")
