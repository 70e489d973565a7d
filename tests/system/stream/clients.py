"""Pages that follow the stream: some are cut off at random and come back, some never read."""

import asyncio
import json
import random
import socket
import time
from collections.abc import Collection
from typing import Any

HEADER = (
    "GET /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n{more}\r\n"
)


class Page:
    """A page that checks that each event comes once and in order."""

    def __init__(self, port: int, token: str) -> None:
        self._address = port, token
        self.last_id = ""
        self.number = 0
        """Of the last event that arrived."""
        self.received = self.gaps = self.repeats = self.resets = self.cuts = 0

    async def follow(self, until: float, cut_after: tuple[float, float], dice: random.Random) -> None:
        """Connect, be cut off, come back, until the clock says `until`; then stay connected."""
        while True:
            connection = await self._connect()
            left = until - time.monotonic()
            try:
                await asyncio.wait_for(connection.ended.wait(), min(max(left, 0), dice.uniform(*cut_after)))
            except TimeoutError:
                if time.monotonic() >= until:
                    return
                self.cuts += 1
                connection.cut()
            await asyncio.sleep(dice.uniform(0, min(2.0, max(0, until - time.monotonic()))))

    async def _connect(self) -> "Connection":
        port, token = self._address
        further_headers = f"Last-Event-ID: {self.last_id}\r\n" if self.last_id else ""
        asking = HEADER.format(port=port, token=token, more=further_headers).encode()
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Connection(self, asking), "127.0.0.1", port)
        return connection

    def read(self, message: bytes) -> None:
        """Take one message."""
        fields = dict(line.split(b": ", 1) for line in message.split(b"\n") if b": " in line)
        self.last_id = fields.get(b"id", b"").decode() or self.last_id
        kind = fields.get(b"event")
        if kind == b"reset":  # what was missed is fetched otherwise
            self.resets += 1
            self.number = 0
        if kind == b"event":
            sent: dict[str, Any] = json.loads(fields[b"data"])["data"]
            if "n" in sent:
                self._count(sent["n"])

    def _count(self, number: int) -> None:
        self.received += 1
        if self.number:
            self.gaps += max(0, number - self.number - 1)
            self.repeats += number <= self.number
        self.number = max(number, self.number)


class Connection(asyncio.Protocol):
    """One connection of a page."""

    def __init__(self, page: Page, asking: bytes) -> None:
        self._page = page
        self._asking = asking
        self._buffer = b""
        self._is_cut = False
        self._transport: asyncio.WriteTransport | None = None
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        transport.write(self._asking)

    def cut(self) -> None:
        """As a lost network does: nothing that is still on its way arrives."""
        self._is_cut = True
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Called by the loop."""
        self.ended.set()

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        if self._is_cut:
            return
        *messages, self._buffer = (self._buffer + data).split(b"\n\n")
        for message in messages:
            self._page.read(message)


class Sleeper:
    """A page that never reads; it connects again when it was dropped."""

    def __init__(self, port: int, token: str) -> None:
        self._address = port, token
        self._connect()

    def _connect(self) -> None:
        port, token = self._address
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self._socket.connect(("127.0.0.1", port))
        self._socket.sendall(HEADER.format(port=port, token=token, more="").encode())

    def look(self, ports: Collection[int]) -> None:
        """Whether it was dropped: `ports` are those that the service is connected with."""
        if self._socket.getsockname()[1] not in ports:
            self._socket.close()
            self._connect()

    def close(self) -> None:
        """Leave."""
        self._socket.close()
