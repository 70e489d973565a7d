"""Response classes: JSON with NumPy arrays and any float, and the schema of a page of a list."""

import json
import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any

import numpy as np
import orjson
from fastapi import Query
from starlette.responses import Response

from backend.base.documented import Documented

MAX_ITEMS = 200

ITEMS_AT_ONCE = 1_000
"""Number of items that are written at a time in a streamed response."""

Limit = Annotated[int, Query(ge=1, le=MAX_ITEMS, description="Items per page.")]
Cursor = Annotated[str, Query(max_length=2000, description="`next` of the previous page.")]


class Page(Documented):
    """A page of a list."""

    items: list[dict[str, Any]]
    next: str | None
    """Cursor of the next page; null on the last page."""


class Json(Response):
    """A JSON response in which NumPy arrays are serialized as lists."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        try:
            return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
        except orjson.JSONEncodeError:
            # Model output may contain lone surrogates, which are valid JSON only if they are escaped.
            return json.dumps(_replace_non_finite(content), allow_nan=False).encode()


def items_as_json(items: Iterable[Any]) -> Iterator[bytes]:
    """Stream a list without additional pages: `{"items": [...], "next": null}`."""
    yield b'{"items":['
    remaining_items = iter(items)
    is_first = True
    while block := list(islice(remaining_items, ITEMS_AT_ONCE)):
        yield (b"" if is_first else b",") + orjson.dumps(block)[1:-1]
        is_first = False
    yield b'],"next":null}'


def _replace_non_finite(value: Any) -> Any:
    """Return a document for json.dumps with null for all non-finite numbers, like orjson."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _replace_non_finite(child) for key, child in value.items()}
        case list() | tuple():
            return [_replace_non_finite(child) for child in value]
        case orjson.Fragment():
            return json.loads(orjson.dumps(value))
        case np.ndarray() | np.generic():
            return _replace_non_finite(value.tolist())
        case _:
            return value
