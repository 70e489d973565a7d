"""HTTP sessions for the S3 client that follow no redirects and limit the size of responses."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from aiobotocore.httpsession import AIOHTTPSession

from backend.storage.artifacts.responses import BLOCK_BYTES, BadResponse

MAX_PAGE_BYTES = 4_000_000
"""Maximum size of a response to a request without a range, in bytes. A page of a listing has 1,000 keys."""

MAX_CALL_BYTES = 3 * BLOCK_BYTES
"""Maximum total size of the responses to one file system call, in bytes.

It is enough to read a block three times, or to list more than 100,000 files.
"""

RANGE_PATTERN = re.compile(r"bytes=(\d+)-(\d+)")


class Allowance:
    """The number of bytes that the responses to one call may still contain."""

    def __init__(self) -> None:
        self.left = MAX_CALL_BYTES

    def subtract(self, size: int) -> None:
        """Subtract received bytes. Raises BadAnswer if they exceed the allowance."""
        self.left -= size
        if self.left < 0:
            raise BadResponse(f"it answers with more than {MAX_CALL_BYTES:,} bytes in all")


_allowance: ContextVar[Allowance | None] = ContextVar("allowance", default=None)


@contextmanager
def count_as_one_call() -> Iterator[None]:
    """Count the responses to all requests inside the `with` block as one call."""
    token = _allowance.set(Allowance())
    try:
        yield
    finally:
        _allowance.reset(token)


class BoundedSession(AIOHTTPSession):  # type: ignore[misc]
    """An S3 client's HTTP session that limits the size of responses."""

    async def _get_session(self, proxy_url: str | None) -> Any:
        return _Requests(await super()._get_session(proxy_url))


class _Requests:
    """An aiohttp session that follows no redirects and limits the size of response bodies."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def request(self, method: str, *, headers: Any, **options: Any) -> Any:
        response = await self._session.request(method, headers=headers, allow_redirects=False, **options)
        if 300 <= response.status < 400 and response.status != 304:
            response.close()
            raise BadResponse(
                f"it answers with a redirect ({response.status}), which is not followed: name the "
                "endpoint and region where the bucket is"
            )
        limit = _max_bytes(headers.get("Range", ""))
        if method != "HEAD" and (response.content_length or 0) > limit:
            response.close()
            raise BadResponse(f"it answers with {response.content_length:,} bytes instead of {limit:,}")
        response.content = _Body(response.content, limit)
        return response


def _max_bytes(range_header: str) -> int:
    """Return the maximum size of a response to a request with this Range header, in bytes."""
    span = RANGE_PATTERN.fullmatch(range_header)
    return int(span[2]) - int(span[1]) + 1 if span else MAX_PAGE_BYTES


class _Body:
    """An aiohttp stream that raises BadAnswer if it exceeds its maximum size."""

    def __init__(self, stream: Any, limit: int) -> None:
        self._stream, self._limit, self._left = stream, limit, limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def read(self, size: int = -1) -> bytes:
        """Read `size` bytes, or all if `size` is negative."""
        if size >= 0:
            return self._count(await self._stream.read(size))
        blocks = []
        while block := self._count(await self._stream.readany()):
            blocks.append(block)
        return b"".join(blocks)

    def _count(self, block: bytes) -> bytes:
        self._left -= len(block)
        if self._left < 0:
            raise BadResponse(f"it answers with more than {self._limit:,} bytes")
        if (allowance := _allowance.get()) is not None:
            allowance.subtract(len(block))
        return block
