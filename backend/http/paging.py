"""Formatted times, pages of a list and their cursors."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar

from backend.base.errors import FieldError, InvalidRequest
from backend.base.text import unstorable

Row = TypeVar("Row")


@lru_cache(maxsize=10_000)  # a list shows four times for each of its runs, mostly the same as before
def iso_time(seconds: float | None) -> str | None:
    """`2026-11-21T09:00:00.123Z`; None stays None, and what is not a time of a calendar becomes None."""
    if seconds is None:
        return None
    try:
        time = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def make_page(
    rows: Sequence[Row],
    limit: int,
    shown: Callable[[Row], Any],
    key_of: Callable[[Row], Sequence[Any]],
    *,
    order: str = "",
) -> dict[str, Any]:
    """Return a page from `limit` + 1 rows: the one too many says that there is a next page."""
    items = [shown(row) for row in rows[:limit]]
    has_more = len(rows) > limit
    return {"items": items, "next": write_cursor(key_of(rows[limit - 1]), order=order) if has_more else None}


def write_cursor(key: Sequence[Any], *, order: str = "") -> str:
    """Return the place of a row in its list, and how that list is ordered; opaque to clients."""
    text = json.dumps([order, *key], ensure_ascii=False)  # names of other scripts would be thrice as long
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(
    cursor: str, *kinds: type | tuple[type, ...], order: str = "", largest: int = 2**31
) -> list[Any] | None:
    """Return the place that `write_cursor` was given, of these types; None for an empty cursor.

    Raises InvalidRequest for a cursor of another order, and for whatever else this list has not given out:
    integers from `largest` on, say, fit none of its columns.
    """
    if not cursor:
        return None
    written, *key = _decode_cursor(cursor)
    is_ours = isinstance(written, str) and len(key) == len(kinds)
    if not is_ours or not all(_fits(*pair, largest) for pair in zip(key, kinds, strict=True)):
        raise InvalidRequest([FieldError("cursor", "is not a cursor of this list")])
    if written != order:
        reason = f"belongs to the order {written!r}, but {order!r} was requested: start without a cursor"
        raise InvalidRequest([FieldError("cursor", reason)])
    return key


def _decode_cursor(cursor: str) -> list[Any]:
    """Return the list that a cursor holds; [None] if it holds none."""
    try:
        fields = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return [None]
    return fields if isinstance(fields, list) and fields and unstorable(fields) is None else [None]


def _fits(key_value: Any, kind: type | tuple[type, ...], largest: int) -> bool:
    """Return whether a column of this kind can be compared with it: true is an int to Python alone."""
    if not isinstance(key_value, kind) or isinstance(key_value, bool):
        return False
    return not isinstance(key_value, int) or abs(key_value) < largest


def split_list(text: str) -> list[str]:
    """`a,b` as a list; empty parts are dropped, repeated ones too."""
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
