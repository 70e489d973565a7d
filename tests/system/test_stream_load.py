"""The event stream under load: pages that are cut off at random, and pages that never read."""

import asyncio
import socket
import threading

import pytest
import uvicorn
from starlette.responses import StreamingResponse

from backend.base.settings import Settings
from backend.service.process import sockets as listening
from tests.system.stream.load import Load, measure
from tests.waiting import wait_for

pytestmark = pytest.mark.nightly

ANY_PORT = Settings().model_copy(update={"port": 0})


def test_pages_that_are_cut_off_miss_nothing_and_hear_nothing_twice(state_dir):
    load = Load(pages=40, sleepers=3, seconds=6.0, cut_after=(0.5, 3.0))
    figures = measure(load, state_dir)
    assert figures.written >= 100
    assert (figures.gaps, figures.repeats, figures.resets, figures.missing_at_end) == (0, 0, 0, 0)
    assert figures.received == load.pages * figures.written
    assert figures.cuts > 0
    assert figures.rss_growth < 20_000_000


def test_a_client_that_takes_nothing_is_cut_off(monkeypatch):
    monkeypatch.setattr(listening, "STALLED_SECONDS", 1)
    ended = threading.Event()

    async def endless():
        try:
            while True:
                yield b"x" * 65536
                await asyncio.sleep(0)
        finally:
            ended.set()

    app = StreamingResponse(endless())
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    (listener,) = listening.listen(ANY_PORT)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        wait_for(lambda: server.started)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.connect(listener.getsockname())
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert ended.wait(60)
    finally:
        server.should_exit = server.force_exit = True
        thread.join(30)


def test_answers_are_sent_without_waiting_for_more():
    """Nagle's algorithm would hold a keep-alive answer back for 40 ms."""
    (listener,) = listening.listen(ANY_PORT)
    assert listener.proto == socket.IPPROTO_TCP
    listener.close()
