"""Send a POST request to a resolved address with a time limit, without redirects and proxies."""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from backend.service.webhook.addresses import TIMEOUT_SECONDS, Target, Unreachable


class _Connection(http.client.HTTPConnection):
    """A connection to the checked address that uses the name of the host for TLS and HTTP."""

    def __init__(self, target: Target, seconds: float) -> None:
        super().__init__(target.host, target.port, timeout=seconds)
        self._target = target
        self._until = time.monotonic() + seconds
        self._is_late = False

    def connect(self) -> None:
        """Connect to one of the addresses instead of the name."""
        self.sock = self._connect_first()
        if self._target.is_tls:
            context = ssl.create_default_context()
            tls = context.wrap_socket(
                self.sock, server_hostname=self._target.host, do_handshake_on_connect=False
            )
            self.sock = tls
            self._check_time()
            tls.do_handshake()
        self._check_time()

    def _connect_first(self) -> socket.socket:
        *fallbacks, last = self._target.addresses
        for address in fallbacks:
            with suppress(OSError):
                return self._connect_to(address)
        return self._connect_to(last)

    def _connect_to(self, address: str) -> socket.socket:
        return socket.create_connection((address, self._target.port), self._check_time())

    def _check_time(self) -> float:
        """Return the remaining seconds; raise TimeoutError if there are none, or after `cut`."""
        remaining_seconds = self._until - time.monotonic()
        if self._is_late or remaining_seconds <= 0:
            raise TimeoutError
        return remaining_seconds

    def interrupt(self) -> None:
        """Interrupt any operation of the connection; called by another thread."""
        self._is_late = True
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)

    @property
    def is_late(self) -> bool:
        """Whether the connection was interrupted."""
        return self._is_late


def post(
    target: Target, body: bytes, headers: Mapping[str, str], *, seconds: float = TIMEOUT_SECONDS
) -> None:
    """Send the body; raise Unreachable unless the response has a 2xx status within the time limit."""
    with _connection(target, seconds) as connection:
        connection.request("POST", target.path, body, dict(headers))
        status = connection.getresponse().status
    if 300 <= status < 400:
        raise Unreachable(f"{target.host} answered {status}: redirects are not followed")
    if not 200 <= status < 300:
        raise Unreachable(f"{target.host} answered {status}")


def try_connection(target: Target, *, seconds: float = TIMEOUT_SECONDS) -> None:
    """Connect, with TLS if the URL requires it, without sending data; raise Unreachable if that fails."""
    with _connection(target, seconds) as connection:
        connection.connect()


@contextmanager
def _connection(target: Target, seconds: float) -> Iterator[_Connection]:
    """Yield a connection that is interrupted after `seconds`; all its errors become Unreachable."""
    connection = _Connection(target, seconds)
    deadline = threading.Timer(seconds, connection.interrupt)
    deadline.daemon = True
    deadline.start()
    try:
        yield connection
    except (OSError, http.client.HTTPException, ValueError) as error:
        if connection.is_late or isinstance(error, TimeoutError):
            raise Unreachable(f"{target.host} did not answer in time") from None
        raise Unreachable(f"{target.host} cannot be reached: {str(error) or type(error).__name__}") from None
    finally:
        deadline.cancel()
        connection.close()
