"""Formatted times, and the pages and cursors of lists."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar

from backend.base.errors import FieldError, InvalidRequest
from backend.base.text import find_unstorable

Row = TypeVar("Row")


@lru_cache(maxsize=10_000)  # a list shows four times per run, which rarely change
def iso_time(seconds: float | None) -> str | None:
    """Return a time such as `2026-11-21T09:00:00.123Z`; None for None or a time outside the calendar."""
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
    format_row: Callable[[Row], Any],
    get_key: Callable[[Row], Sequence[Any]],
    *,
    order: str = "",
) -> dict[str, Any]:
    """Return a page from up to `limit` + 1 rows; the additional row means that there is a next page."""
    items = [format_row(row) for row in rows[:limit]]
    has_more = len(rows) > limit
    return {"items": items, "next": write_cursor(get_key(rows[limit - 1]), order=order) if has_more else None}


def write_cursor(key: Sequence[Any], *, order: str = "") -> str:
    """Return a cursor with the position of a row and the order of its list; it is opaque to clients."""
    text = json.dumps([order, *key], ensure_ascii=False)  # escapes would triple the length of non-ASCII names
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(
    cursor: str, *kinds: type | tuple[type, ...], order: str = "", largest: int = 2**31
) -> list[Any] | None:
    """Return the position that `write_cursor` stored, of these types; None for an empty cursor.

    Raise InvalidRequest for a cursor with another order, or one that this list cannot have created, such as
    one with integers that are too large for its columns (`largest` or more).
    """
    if not cursor:
        return None
    cursor_order, *key = _decode_cursor(cursor)
    is_valid = isinstance(cursor_order, str) and len(key) == len(kinds)
    if not is_valid or not all(_fits(*pair, largest) for pair in zip(key, kinds, strict=True)):
        raise InvalidRequest([FieldError("cursor", "is not a cursor of this list")])
    if cursor_order != order:
        reason = f"belongs to the order {cursor_order!r}, but {order!r} was requested: start without a cursor"
        raise InvalidRequest([FieldError("cursor", reason)])
    return key


def _decode_cursor(cursor: str) -> list[Any]:
    """Return the list in a cursor, or [None] if it is invalid."""
    try:
        fields = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return [None]
    return fields if isinstance(fields, list) and fields and find_unstorable(fields) is None else [None]


def _fits(key_value: Any, kind: type | tuple[type, ...], largest: int) -> bool:
    """Return whether a value can be compared with a column of this type; booleans are not integers here."""
    if not isinstance(key_value, kind) or isinstance(key_value, bool):
        return False
    return not isinstance(key_value, int) or abs(key_value) < largest


def split_list(text: str) -> list[str]:
    """Return the items of a comma-separated list, without empty and repeated items."""
    return list(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))
