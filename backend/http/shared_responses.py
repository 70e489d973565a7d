"""Responses that are shared by readers: computed once per state of the data, and identified by an ETag."""

from collections.abc import Callable
from hashlib import blake2b
from threading import Condition
from typing import Annotated, Any

from cachetools import LRUCache, cached
from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from backend.http.responses import Json

MAX_BYTES = 8 * 2**20
"""Maximum size of all cached responses in bytes; the least recently used is dropped first."""

FRESH_CACHING = "private, no-cache"
"""Cache-Control header: a browser may cache the response, but must revalidate it each time."""


class SharedResponses:
    """JSON responses by their ETags. Concurrent requests for the same response wait for one computation."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        cache: LRUCache[str, bytes] = LRUCache(max_bytes, getsizeof=len)

        @cached(cache, key=lambda tag, _make: tag, condition=Condition())
        def encode_body(_tag: str, make: Callable[[], Any]) -> bytes:
            return bytes(Json(make()).body)

        self._body_of = encode_body

    def answer(self, request: Request, state: object, make: Callable[[], Any]) -> Response:
        """Return the response to a GET request, or 304 if the client has it.

        `state` contains everything besides the URL on which the content depends, read in the same
        transaction. `make` creates the content.
        """
        content = repr((request.app.version, request.url.path, request.url.query, state))
        tag = f'"{blake2b(content.encode(), digest_size=16).hexdigest()}"'
        headers = {"ETag": tag, "Cache-Control": FRESH_CACHING}
        if tag in _tags(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        return Response(self._body_of(tag, make), media_type=Json.media_type, headers=headers)


def _tags(header: str) -> list[str]:
    """Return the tags in an If-None-Match header; a compressing proxy makes them weak."""
    return [tag.strip().removeprefix("W/") for tag in header.split(",")]


async def _shared_responses(request: Request) -> SharedResponses:
    answers: SharedResponses = request.app.state.shared_responses
    return answers


SharedAnswersOf = Annotated[SharedResponses, Depends(_shared_responses)]
