"""Tests of requests to servers that may answer with anything."""

import threading

import pytest

from backend.base.outgoing import fetch
from tests.hostile_server import endless, hostile_server

UNBOUNDED_RESPONSE = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
EMPTY_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def test_the_response_is_read_only_up_to_the_limit():
    with hostile_server(lambda _: endless(UNBOUNDED_RESPONSE, b"x" * 65536)) as server:
        answer = fetch(server.url, max_bytes=100_000, seconds=60)
        assert answer == (200, b"x" * 100_000)
        assert server.cut.wait(60)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_answer_unless_it_may_be_followed(status):
    def answer(head):
        path = head.split()[1]
        yield (
            f"HTTP/1.1 {status} Go\r\nLocation: /there\r\n\r\n".encode()
            if path == "/here"
            else EMPTY_RESPONSE
        )
        while path == "/here":
            yield b"x" * 65536

    with hostile_server(answer) as server:
        redirecting_url = f"{server.url}/here"
        assert fetch(redirecting_url, max_bytes=10, seconds=60).status == status
        assert [head.split()[1] for head in server.heads] == ["/here"]
        followed_response = fetch(
            redirecting_url,
            max_bytes=10,
            seconds=60,
            may_redirect_to=lambda target: target.endswith("/there"),
        )
        assert followed_response == (200, b"")


@pytest.mark.parametrize(
    "opening",
    [b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nA: ", UNBOUNDED_RESPONSE],
    ids=["status", "header", "body"],
)
def test_a_trickling_response_is_cut_at_the_deadline(monkeypatch, opening):
    cut_callbacks = []

    class Clock:
        """A timer that fires when the server asks for it."""

        def __init__(self, _seconds, callback):
            cut_callbacks.append(callback)

        def start(self):
            pass

        cancel = start

    monkeypatch.setattr(threading, "Timer", Clock)

    def answer(_):
        yield opening
        yield b"x"
        threading.Thread(target=cut_callbacks[0]).start()
        yield from endless(b"", b"x")

    with hostile_server(answer) as server:
        with pytest.raises(TimeoutError, match="no answer within 60 s"):
            fetch(server.url, max_bytes=10**8, seconds=60)
        assert server.cut.wait(60)
