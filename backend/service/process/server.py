"""The HTTP server: uvicorn, with a time limit for silent connections."""

import asyncio
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from backend.base.settings import Settings
from backend.http.limits import MAX_ARRIVAL_SECONDS, MAX_CONNECTIONS, MAX_HEAD_BYTES
from backend.http.problem_details import problem
from backend.service.process.gc_freeze import freeze_gc
from backend.service.process.memory import keep_returning_memory, limit_arenas
from backend.service.process.sockets import listen

LINGER_SECONDS = 1
"""Seconds for a refused client to read the response."""

TICK_SECONDS = 1.0
"""Seconds between two updates of the Date header."""

GRACE_SECONDS = 3
"""Maximum duration of a graceful shutdown in seconds, which open event streams would delay indefinitely."""


class Protocol(H11Protocol):
    """HTTP/1.1 with a time limit for receiving the URL and headers of a request."""

    _waiting: asyncio.TimerHandle | None = None
    _is_refused = False
    heard_at = 0.0
    """Time of the event loop at which the client last sent or read data."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection and wait for its first request; refuse it if there are too many."""
        super().connection_made(transport)
        self.heard_at = self.loop.time()
        if len(self.connections) > MAX_CONNECTIONS and not self._make_room():
            self._refuse(
                503, "Unavailable", f"{MAX_CONNECTIONS:,} connections are open: try again in a moment"
            )
        else:
            self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes of headers or a body."""
        if self._is_refused:
            return
        self.heard_at = self.loop.time()
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_head()
        else:
            self._stop_waiting()

    def resume_writing(self) -> None:
        """Resume writing, because the client has read data."""
        self.heard_at = self.loop.time()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Handle the shutdown of the server."""
        if self._is_refused:
            self.transport.close()
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's message has no details
        """Respond to bytes that are not valid HTTP."""
        detail = f"this is not an HTTP/1.1 request with a head of at most {MAX_HEAD_BYTES:,} bytes"
        self._refuse(400, "Bad request", detail)

    def _make_room(self) -> bool:
        """Close the connection that has been silent longest; return False if no client is silent.

        Connecting does not need a token, so idle connections must not keep other clients out.
        """
        connections = (
            connection
            for connection in self.connections
            if isinstance(connection, Protocol) and connection is not self
        )
        silent_connections = [connection for connection in connections if connection.waits_for_client()]
        if not silent_connections:
            return False
        min(silent_connections, key=lambda connection: connection.heard_at).transport.abort()
        return True

    def waits_for_client(self) -> bool:
        """Return whether the client has to send its request or the rest of it, or to read the response."""
        if self.transport.is_closing() or self._is_refused:
            return False
        if self.cycle is None or self.cycle.response_complete:
            return True
        return self.flow.write_paused or (self.cycle.more_body and not self.flow.read_paused)

    def _wait_for_head(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(MAX_ARRIVAL_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _refuse(self, status: int, title: str, detail: str) -> None:
        answer = problem(status, title, detail, headers={"Connection": "close"})
        head = [b"HTTP/1.1 %d %s" % (status, title.encode())]
        head += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join(head) + b"\r\n\r\n" + bytes(answer.body))
        # If the connection were closed while data arrive, the response would be lost.
        self._is_refused = True
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


class Server(uvicorn.Server):
    """uvicorn that wakes up once a second and at signals instead of ten times a second."""

    _signalled: asyncio.Event
    _loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Serve until the server is asked to exit."""
        self._signalled, self._loop = asyncio.Event(), asyncio.get_running_loop()
        while not await self.on_tick(0):  # 0 updates the Date header
            with suppress(TimeoutError):
                await asyncio.wait_for(self._signalled.wait(), TICK_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal that asks the server to exit."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._signalled.set)


def server_config(app: Any, settings: Settings, **options: Any) -> uvicorn.Config:
    """Return the configuration with which uvicorn serves `app`, an application or its factory."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=Protocol,
        ws="none",
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        access_log=False,  # backend/http/access_log.py logs requests without query strings
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        **{"timeout_graceful_shutdown": GRACE_SECONDS, **options},
    )


def run_server(settings: Settings) -> int:
    """Serve until a signal arrives; return the exit code, which is 1 if the server could not start."""
    limit_arenas()
    server = Server(server_config(partial(_make_app, settings), settings, factory=True, log_config=None))
    keep_returning_memory()
    with suppress(KeyboardInterrupt):
        server.run(sockets=listen(settings))
    return 0 if server.started else 1


def _make_app(settings: Settings) -> FastAPI:
    with freeze_gc():
        from backend.service.main import create_app

        return create_app(settings)
