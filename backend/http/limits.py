"""Limits on a client: request size, request rate, and the time to send a request."""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope

from backend.http.problem_details import problem

MAX_ADDRESS_BYTES = 49_152
"""Maximum size of a request's path and query, in bytes."""
MAX_HEADER_BYTES = 16_384
"""Maximum size of all headers of a request, in bytes."""
MAX_HEAD_BYTES = 65_536
"""Maximum size of URL and headers together, in bytes; larger requests do not reach the application."""
MAX_BODY_BYTES = 1_000_000
"""Maximum size of a JSON body, in bytes."""
MAX_PUSH_BYTES = 16_000_000
"""Maximum size of a pushed body, packed or unpacked, in bytes: a group of 512 completions of 8,000 tokens."""
MAX_ARRIVAL_SECONDS = 15.0
"""Time limit for URL and headers to arrive, and again for the body, in seconds."""
MAX_CONNECTIONS = 1000
"""Maximum number of concurrent connections; additional ones get the response 503."""

MAX_BUCKETS = 10_000


class Buckets:
    """Token buckets by key with up to `burst` tokens, refilled by `per_second`; 0 means no limit."""

    def __init__(self, *, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, key: str) -> float:
        """Return the seconds until a token is available, or 0.0 if one is, without taking it."""
        if not self._per_second:
            return 0.0
        level = self._level(key, time.monotonic())
        return 0.0 if level >= 1 else (1 - level) / self._per_second

    def _level(self, key: str, now: float) -> float:
        level, updated_at = self._levels.get(key, (self._burst, now))
        return min(self._burst, level + (now - updated_at) * self._per_second)

    def take_token(self, key: str) -> float:
        """Take a token and return 0.0, or return the seconds until one is available."""
        if not self._per_second:
            return 0.0
        wait, now = self.wait(key), time.monotonic()
        level = self._level(key, now)
        self._levels[key] = (level if wait else max(0.0, level - 1), now)
        self._levels.move_to_end(key)
        if len(self._levels) > MAX_BUCKETS:
            self._levels.popitem(last=False)  # the least recently used key
        return wait


def too_many(requests: str, wait: float) -> Response:
    """Return a response with status 429 and the time to wait."""
    seconds = max(1, math.ceil(wait))
    unit = "second" if seconds == 1 else "seconds"
    detail = f"too many {requests}: try again in {seconds} {unit}; the request was not carried out"
    return problem(429, "Too many requests", detail, headers={"Retry-After": str(seconds)})


def address_refusal(scope: Scope, headers: Headers) -> Response | None:
    """Return the response to a request whose URL or headers exceed the limits; None if they do not."""
    if any(character < " " or character == "\x7f" for character in scope["path"]):
        return problem(400, "Bad request", "the address contains a control character")
    if b"%00" in scope["query_string"]:
        return problem(400, "Bad request", "the address contains NUL")
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_ADDRESS_BYTES:
        return problem(
            414, "Address too long", f"at most {MAX_ADDRESS_BYTES:,} bytes of path and query are accepted"
        )
    if sum(len(name) + len(value) for name, value in headers.raw) > MAX_HEADER_BYTES:
        return problem(
            431, "Headers too large", f"at most {MAX_HEADER_BYTES:,} bytes of headers are accepted"
        )
    return None


def body_refusal(headers: Headers, *, limit: int = MAX_BODY_BYTES) -> Response | None:
    """Return the response to a body that its headers disqualify; None if it may be read."""
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) <= 20) or int(length) > limit:
        return problem(413, "Too large", too_large(limit))
    has_body = int(length) > 0 or "transfer-encoding" in headers
    kind, _, parameters = headers.get("content-type", "").partition(";")
    if has_body and kind.strip().lower() != "application/json":
        return problem(415, "Unsupported media type", "expected Content-Type: application/json")
    if "charset=" in parameters.lower() and "utf-8" not in parameters.lower():
        return problem(415, "Unsupported media type", "JSON must be UTF-8")
    return None


async def read_body(
    receive: Receive, *, limit: int = MAX_BODY_BYTES, count: Callable[[int], None] = lambda _: None
) -> bytes:
    """Read the complete body; raise HTTPException: 413 if it is too large, 408 if it is too slow.

    The received bytes are counted and reported to `count`, because Content-Length may be wrong or missing.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(MAX_ARRIVAL_SECONDS):
            has_more = True
            while has_more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunk = message.get("body", b"")
                count(len(chunk))
                body += chunk
                has_more = message.get("more_body", False)
                if len(body) > limit:
                    raise HTTPException(413, too_large(limit))
    except TimeoutError:
        reason = f"the body did not arrive within {MAX_ARRIVAL_SECONDS:.0f} seconds"
        raise HTTPException(408, reason, headers={"Connection": "close"}) from None
    return bytes(body)


def too_large(limit: int) -> str:
    """Return the error message for a body that is too large."""
    return f"at most {limit:,} bytes are allowed"
