"""HTTP requests to untrusted servers, with a deadline, a maximum answer size and no unwanted redirects."""

import http.client
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import IO, Any, NamedTuple, Self
from urllib.request import Request


class Response(NamedTuple):
    """An HTTP response."""

    status: int
    content: bytes
    """Body of the response, truncated to `max_bytes`."""


def fetch(
    address: str,
    *,
    max_bytes: int,
    seconds: float,
    body: bytes | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
    may_redirect_to: Callable[[str], bool] = lambda _address: False,
    uses_proxies: bool = False,
) -> Response:
    """Send a request to an http:// or https:// address and return the response. A `body` is sent with POST.

    `may_redirect_to` returns True for each address to which a redirect may lead, by default for none. A
    redirect that is not followed is returned. The connection is closed after `seconds` in any state, or after
    `max_bytes`. Raises TimeoutError after `seconds`, and OSError or HTTPException if the request fails.
    """
    request = Request(address, body, dict(headers))  # noqa: S310 - the next line checks the scheme
    if request.type not in ("http", "https"):
        raise OSError(f"expected an address of http:// or https://, got one of {request.type}:")
    with Deadline(seconds) as deadline:
        handlers = [_Redirects(may_redirect_to), _NoErrorOnStatus(), _Connections(deadline)]
        proxies = [] if uses_proxies else [urllib.request.ProxyHandler({})]
        try:
            with _open(urllib.request.build_opener(*handlers, *proxies), request, seconds) as response:
                answer = Response(response.status, response.read(max_bytes))
        except (OSError, http.client.HTTPException) as error:
            if deadline.is_late or isinstance(getattr(error, "reason", error), TimeoutError):
                raise TimeoutError(f"no answer within {seconds:g} s") from None
            raise
        if deadline.is_late:  # a body without a length looks complete when the connection was cut
            raise TimeoutError(f"no answer within {seconds:g} s")
        return answer


def _open(opener: urllib.request.OpenerDirector, request: Request, seconds: float) -> Any:
    try:
        return opener.open(request, timeout=seconds)
    except urllib.error.HTTPError as redirect:  # a redirect that is not followed
        return redirect


class Deadline:
    """Closes all connections that were opened through it when the time limit has passed."""

    def __init__(self, seconds: float) -> None:
        self.is_late = False
        self._until = time.monotonic() + seconds
        self._handles: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._interrupt)
        self._timer.daemon = True

    def connect(self, address: tuple[str, int], _timeout: Any, source: Any = None) -> socket.socket:
        """Connect to an address. Raises TimeoutError after the deadline, OSError if the connection fails."""
        remaining_seconds = self._until - time.monotonic()
        if remaining_seconds <= 0:
            raise TimeoutError
        connection = socket.create_connection(address, remaining_seconds, source)
        with self._lock:
            self._handles.append(connection.dup())  # TLS takes ownership of the connection's descriptor
            if self.is_late:
                self._shut()
        return connection

    def _interrupt(self) -> None:
        with self._lock:
            self.is_late = True
            self._shut()

    def _shut(self) -> None:
        for handle in self._handles:
            with suppress(OSError):
                handle.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            for handle in self._handles:
                handle.close()
            self._handles.clear()


class _Connections(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens the connections of both schemes within a deadline."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: Request) -> Any:
        return self.do_open(_connection_factory(http.client.HTTPConnection, self._deadline), req)

    def https_open(self, req: Request) -> Any:
        return self.do_open(_connection_factory(http.client.HTTPSConnection, self._deadline), req)


def _connection_factory(kind: Callable[..., Any], deadline: Deadline) -> Callable[..., Any]:
    def connection(host: str, **options: Any) -> Any:
        http_connection = kind(host, **options)
        http_connection._create_connection = deadline.connect  # noqa: SLF001 - opens the socket
        return http_connection

    return connection


class _NoErrorOnStatus(urllib.request.HTTPErrorProcessor):
    """Returns responses of every status except redirects to the caller."""

    def http_response(self, request: Request, response: Any) -> Any:
        return super().http_response(request, response) if 300 <= response.status < 400 else response

    https_response = http_response


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, follows: Callable[[str], bool]) -> None:
        self._follows = follows

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        if not self._follows(newurl):
            return None
        fp.close()  # otherwise the whole body, of any length, is read before the redirect is followed
        return super().redirect_request(req, fp, code, msg, headers, newurl)
