"""One POST to a resolved address: no redirects, no proxies, a deadline over all of it."""

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress

from backend.webhook.addresses import Target, Unreachable

SECONDS = 10.0
"""Deadline of a request, from connecting to the status of its answer."""


class _Connection(http.client.HTTPConnection):
    """A connection to the address that was checked, which speaks to the host by its name."""

    def __init__(self, target: Target, seconds: float) -> None:
        super().__init__(target.host, target.port, timeout=seconds)
        self._target = target
        self._is_late = False

    def connect(self) -> None:
        """Connect to one of the addresses, not to the name."""
        self.sock = self._first_that_answers()
        if self._target.is_tls:
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=self._target.host)

    def _first_that_answers(self) -> socket.socket:
        *others, last = self._target.addresses
        for address in others:
            with suppress(OSError):
                return socket.create_connection((address, self._target.port), self.timeout)
        return socket.create_connection((last, self._target.port), self.timeout)

    def cut(self) -> None:
        """End whatever the connection waits for; called by another thread."""
        self._is_late = True
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)

    @property
    def is_late(self) -> bool:
        """Whether it was cut."""
        return self._is_late


def post(target: Target, body: bytes, headers: Mapping[str, str], *, seconds: float = SECONDS) -> None:
    """Send the body; raises Unreachable unless the answer is a 2xx within the deadline."""
    connection = _Connection(target, seconds)
    deadline = threading.Timer(seconds, connection.cut)
    deadline.daemon = True
    deadline.start()
    try:
        connection.request("POST", target.path, body, dict(headers))
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as error:
        if connection.is_late or isinstance(error, TimeoutError):
            raise Unreachable(f"{target.host} did not answer within {seconds:g} s") from None
        raise Unreachable(f"{target.host} cannot be reached: {str(error) or type(error).__name__}") from None
    finally:
        deadline.cancel()
        connection.close()
    if 300 <= status < 400:
        raise Unreachable(f"{target.host} answered {status}: redirects are not followed")
    if not 200 <= status < 300:
        raise Unreachable(f"{target.host} answered {status}")


def try_connection(target: Target, *, seconds: float = SECONDS) -> None:
    """Connect, with TLS where the address asks for it, and send nothing; raises Unreachable."""
    connection = _Connection(target, seconds)
    try:
        connection.connect()
    except OSError as error:
        raise Unreachable(f"{target.host} cannot be reached: {error}") from None
    finally:
        connection.close()
