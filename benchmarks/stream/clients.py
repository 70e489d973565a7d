"""Pages that follow the stream: some are cut off at random and come back, some never read."""

import asyncio
import json
import random
import select
import socket
import time
from array import array
from typing import Any

HEADER = (
    "GET /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n{more}\r\n"
)


class Page(asyncio.Protocol):
    """A page that checks that each event comes once and in order, and how late."""

    def __init__(self, port: int, token: str) -> None:
        self._address = port, token
        self._buffer = b""
        self._transport: asyncio.WriteTransport | None = None
        self._opened_at = float("inf")
        self._is_lost = asyncio.Event()
        self.last_id = ""
        self.number = 0
        """Of the last event that arrived."""
        self.received = self.gaps = self.repeats = self.resets = self.cuts = 0
        self.seconds = array("d")
        """How late each event was that happened while the page was connected."""

    async def follow(self, until: float, cut_after: tuple[float, float], dice: random.Random) -> None:
        """Connect, be cut off, come back, until the clock says `until`; then stay connected."""
        while True:
            await self._connect()
            left = until - time.monotonic()
            try:
                await asyncio.wait_for(self._is_lost.wait(), min(max(left, 0), dice.uniform(*cut_after)))
            except TimeoutError:
                if time.monotonic() >= until:
                    return
                self.cuts += 1
                self.cut()
            await asyncio.sleep(dice.uniform(0, min(2.0, max(0, until - time.monotonic()))))

    async def _connect(self) -> None:
        port, token = self._address
        self._buffer, self._opened_at = b"", float("inf")
        self._is_lost.clear()
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", port)
        more = f"Last-Event-ID: {self.last_id}\r\n" if self.last_id else ""
        self._transport.write(HEADER.format(port=port, token=token, more=more).encode())

    def cut(self) -> None:
        """As a lost network does."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Called by the loop."""
        self._is_lost.set()

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        now = time.time()
        self._opened_at = min(self._opened_at, now)
        *messages, self._buffer = (self._buffer + data).split(b"\n\n")
        for message in messages:
            self._read(message, now)

    def _read(self, message: bytes, now: float) -> None:
        fields = dict(line.split(b": ", 1) for line in message.split(b"\n") if b": " in line)
        self.last_id = fields.get(b"id", b"").decode() or self.last_id
        kind = fields.get(b"event")
        self.resets += kind == b"reset"
        if kind == b"event":
            sent: dict[str, Any] = json.loads(fields[b"data"])["data"]
            if "n" in sent:
                self._count(sent["n"], sent["sent"], now)

    def _count(self, number: int, sent: float, now: float) -> None:
        self.received += 1
        if self.number:
            self.gaps += max(0, number - self.number - 1)
            self.repeats += number <= self.number
        self.number = max(number, self.number)
        if sent > self._opened_at:
            self.seconds.append(now - sent)


class Sleeper:
    """A page that never reads; it connects again when it was dropped."""

    def __init__(self, port: int, token: str) -> None:
        self._address = port, token
        self.lived: list[float] = []
        """Seconds until each connection was dropped."""
        self._connect()

    def _connect(self) -> None:
        port, token = self._address
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self._socket.connect(("127.0.0.1", port))
        self._socket.sendall(HEADER.format(port=port, token=token, more="").encode())
        self._since = time.monotonic()

    def look(self) -> None:
        """Whether it was dropped."""
        poll = select.poll()
        poll.register(self._socket, select.POLLRDHUP)
        if poll.poll(0):
            self.lived.append(time.monotonic() - self._since)
            self._socket.close()
            self._connect()

    def close(self) -> None:
        """Leave."""
        self._socket.close()
