"""Times as text, pages of a list and their cursors."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from backend.errors import FieldError, InvalidRequest
from backend.text import unstorable

LARGEST = 2**63
"""Integers from here on fit no column."""

Row = TypeVar("Row")


def iso(seconds: float | None) -> str | None:
    """`2026-11-21T09:00:00.123Z`; None stays None."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def page_of(
    rows: Sequence[Row], limit: int, shown: Callable[[Row], Any], place: Callable[[Row], Sequence[Any]]
) -> dict[str, Any]:
    """A page from `limit` + 1 rows: the one too many says that there is a next page."""
    items = [shown(row) for row in rows[:limit]]
    return {"items": items, "next": write_cursor(place(rows[limit - 1])) if len(rows) > limit else None}


def write_cursor(place: Sequence[Any]) -> str:
    """The place of a row in its list, opaque to clients."""
    return base64.urlsafe_b64encode(json.dumps(list(place)).encode()).decode().rstrip("=")


def read_cursor(cursor: str, *kinds: type | tuple[type, ...]) -> list[Any] | None:
    """What `write_cursor` was given, of these types; None for an empty cursor."""
    if not cursor:
        return None
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        place = None
    is_ours = isinstance(place, list) and len(place) == len(kinds) and unstorable(place) is None
    is_ours = is_ours and all(not isinstance(part, int) or abs(part) < LARGEST for part in place)
    if not is_ours or not all(isinstance(part, kind) for part, kind in zip(place, kinds, strict=True)):
        raise InvalidRequest([FieldError("cursor", "is not one that this list has given out")])
    return list(place)


def split_list(text: str) -> list[str]:
    """`a,b` as a list; empty parts are dropped, repeated ones too."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
