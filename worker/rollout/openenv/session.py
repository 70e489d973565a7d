"""A session with an OpenEnv server: one WebSocket for the resets and steps of one episode.

A session never sends a step twice, because the environment may have acted on the first one. Redirects and
proxies are not followed, messages are not compressed, and a message has at most MAX_BYTES.
"""

import json
import socket
import struct
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect

from worker.rollout.openenv.answers import Lost, ObservedStep, Refused, read_answer

CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 2.0
MAX_BYTES = 2**20
"""Maximum size of a message, in bytes. Observed text is far shorter."""

SEND_LIMIT = struct.pack("ll", int(CONNECT_SECONDS), 0)
"""Timeout of a send, as seconds and microseconds, in case the server stops reading."""

PORTS = {"http": 80, "https": 443}


class Session:
    """The connection of one episode. Closing it frees a session on the server."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """Connect to a server at the http:// or https:// address `url`. Raise Lost."""
        with ExitStack() as exit_stack:
            self._connection: ClientConnection = exit_stack.enter_context(_connect(url, headers))
            self._open = exit_stack.pop_all()

    def reset(self, seed: int, *, seconds: float) -> ObservedStep:
        """Return the first observation of the episode with this seed. Raise Full, Refused or Lost."""
        observed_step = self._ask({"type": "reset", "data": {"seed": seed}}, seconds)
        if observed_step.done:
            raise Lost("its episode is over before it begins")
        return observed_step

    def step(self, action: dict[str, Any], *, seconds: float) -> ObservedStep:
        """Send an action and return its answer. Raise Refused or Lost."""
        return self._ask({"type": "step", "data": action}, seconds)

    def close(self) -> None:
        """Ask the server to close the connection, so that its session is free, then close it."""
        with suppress(WebSocketException, OSError, TimeoutError):
            self._connection.send('{"type": "close"}')
            self._connection.recv(CLOSE_SECONDS)
        self._open.close()

    def _ask(self, request: dict[str, Any], seconds: float) -> ObservedStep:
        try:
            self._refuse_unasked()
            with suppress(ConnectionClosed):  # The server's last messages may still be read.
                self._connection.send(json.dumps(request))
            message = self._connection.recv(seconds)
        except TimeoutError:
            raise Lost(f"it gave no answer within {seconds:g} seconds") from None
        except ConnectionClosed as error:
            raise Lost(_closing_reason(error)) from error
        except (WebSocketException, OSError) as error:
            raise Lost(f"its connection failed ({type(error).__name__})") from error
        return read_answer(message)

    def _refuse_unasked(self) -> None:
        """Refuse an unsolicited message, which would be mistaken for the answer to the next request.

        A server that is full reports it before any request.
        """
        with suppress(TimeoutError):
            message = self._connection.recv(0)
            with suppress(Refused):
                read_answer(message)
            raise Lost("it sent a message that nobody asked for")


def _connect(url: str, headers: Mapping[str, str]) -> ClientConnection:
    """Open a connection through a new socket, which excludes redirects and proxies."""
    url_parts = urlsplit(url)
    address = (url_parts.hostname or "", url_parts.port or PORTS[url_parts.scheme])
    try:
        tcp_socket = socket.create_connection(address, CONNECT_SECONDS)
        tcp_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, SEND_LIMIT)
        return connect(
            f"ws{url.removeprefix('http')}/ws",
            sock=tcp_socket,
            additional_headers=headers,
            compression=None,
            proxy=None,
            open_timeout=CONNECT_SECONDS,
            ping_interval=None,
            close_timeout=CLOSE_SECONDS,
            max_size=MAX_BYTES,
            max_queue=1,
            legacy=True,
        )
    except (WebSocketException, OSError, EOFError, ValueError) as error:
        raise Lost(f"it cannot be reached ({type(error).__name__})") from error


def _closing_reason(error: ConnectionClosed) -> str:
    sent = error.sent
    if sent is not None and sent.code == 1009:
        return f"its message is longer than {MAX_BYTES:,} bytes"
    return "it closed the connection"
