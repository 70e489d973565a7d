"""The HTTP server: uvicorn, with a limit on how long a connection may stay silent."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from backend.http.limits import ARRIVAL_SECONDS, CONNECTIONS, HEAD_BYTES
from backend.http.problem_details import problem
from backend.process.gc_freeze import gc_frozen
from backend.process.sockets import listen
from backend.settings import Settings

LINGER_SECONDS = 1
"""How long somebody who was refused may take to read why."""

GRACE_SECONDS = 3
"""Open event streams would hold a server that ends for ever."""


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 with a limit on heads: on the seconds in which one may drip in, and on its bytes.

    The same limit of bytes holds for what is no content of a body: extensions of its chunks, and trailers,
    which the application never sees.
    """

    _waiting: asyncio.TimerHandle | None = None
    _is_refused = False
    _unread = 0
    """Bytes that have arrived since the last piece of a body, the last complete head or the last request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has connected."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            self._refuse(503, "Unavailable", f"{CONNECTIONS:,} connections are open: try again in a moment")
        else:
            self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Something has arrived: of a head, or of a body."""
        if self._is_refused:
            return
        self._unread += len(data)
        super().data_received(data)
        if self._unread > HEAD_BYTES and not self._is_refused:
            self.send_400_response("")
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_head()
        else:
            self._stop_waiting()

    def on_headers_complete(self) -> None:
        """The head of a request is complete."""
        self._unread = 0
        super().on_headers_complete()
        self.headers = []  # trailers do not become headers

    def on_body(self, body: bytes) -> None:
        """A piece of a body has arrived."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._unread = 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._stop_waiting()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server ends."""
        if self._is_refused:
            self.transport.close()
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn says little
        """Answer bytes that cannot be read as HTTP."""
        detail = f"this is no request of HTTP/1.1 with a head of at most {HEAD_BYTES:,} bytes"
        self._refuse(400, "Bad request", detail)

    def _wait_for_head(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(ARRIVAL_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _refuse(self, status: int, title: str, detail: str) -> None:
        answer = problem(status, title, detail, headers={"Connection": "close"})
        head = [b"HTTP/1.1 %d %s" % (status, title.encode())]
        head += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join(head) + b"\r\n\r\n" + bytes(answer.body))
        # Closed while more comes in, the answer would be lost on its way.
        self._is_refused = True
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


def server_config(app: Any, settings: Settings, **options: Any) -> uvicorn.Config:
    """The configuration with which uvicorn serves `app`, an application or its factory."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=Protocol,
        ws="none",
        access_log=False,  # backend/http/access_log.py writes one without query strings
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        **{"timeout_graceful_shutdown": GRACE_SECONDS, **options},
    )


def run_server(settings: Settings) -> int:
    """Serve until a signal; 1 when it could not begin."""
    server = uvicorn.Server(
        server_config(partial(_make_app, settings), settings, factory=True, log_config=None)
    )
    with suppress(KeyboardInterrupt):
        server.run(sockets=listen(settings))
    return 0 if server.started else 1


def _make_app(settings: Settings) -> FastAPI:
    with gc_frozen():
        from backend.main import create_app

        return create_app(settings)
