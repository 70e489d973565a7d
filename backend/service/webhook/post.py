"""One POST to a resolved address: no redirects, no proxies, a deadline over all of it."""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from backend.service.webhook.addresses import SECONDS, Target, Unreachable


class _Connection(http.client.HTTPConnection):
    """A connection to the address that was checked, which speaks to the host by its name."""

    def __init__(self, target: Target, seconds: float) -> None:
        super().__init__(target.host, target.port, timeout=seconds)
        self._target = target
        self._until = time.monotonic() + seconds
        self._is_late = False

    def connect(self) -> None:
        """Connect to one of the addresses, not to the name."""
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
        *earlier, last = self._target.addresses
        for address in earlier:
            with suppress(OSError):
                return self._connect_to(address)
        return self._connect_to(last)

    def _connect_to(self, address: str) -> socket.socket:
        return socket.create_connection((address, self._target.port), self._check_time())

    def _check_time(self) -> float:
        """Seconds that are left; raises TimeoutError. A cut of before there was a socket is seen here."""
        left = self._until - time.monotonic()
        if self._is_late or left <= 0:
            raise TimeoutError
        return left

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
    with _connection(target, seconds) as connection:
        connection.request("POST", target.path, body, dict(headers))
        status = connection.getresponse().status
    if 300 <= status < 400:
        raise Unreachable(f"{target.host} answered {status}: redirects are not followed")
    if not 200 <= status < 300:
        raise Unreachable(f"{target.host} answered {status}")


def try_connection(target: Target, *, seconds: float = SECONDS) -> None:
    """Connect, with TLS if the address requires it, and send nothing. Raises Unreachable if it fails."""
    with _connection(target, seconds) as connection:
        connection.connect()


@contextmanager
def _connection(target: Target, seconds: float) -> Iterator[_Connection]:
    """Yield a connection that is cut after `seconds`, whatever it waits for; every fault of it is
    Unreachable.
    """
    connection = _Connection(target, seconds)
    deadline = threading.Timer(seconds, connection.cut)
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
