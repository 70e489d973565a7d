"""Parse the dates of queries: a day, a time of day, or a time before now."""

import re
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, literal
from sqlalchemy.types import Float

from backend.storage.engine import db_now

SECONDS_BY_UNIT = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
AGO_PATTERN = re.compile(r"-(\d{1,6})([smhdw])")
DATE_PATTERN = re.compile(
    r"\d{4}-\d\d-\d\d(?P<time>[T ]\d\d:\d\d(?P<second>:\d\d(\.\d{1,6})?)?)?(Z|[+-]\d\d:?\d\d)?"
)

EXPECTED_MESSAGE = "expected a date such as 2026-11-01, 2026-11-01T14:30 (UTC) or -7d (s, m, h, d, w)"


class Period(NamedTuple):
    """The period that a date refers to, from its start to just before its end, in Unix time."""

    start: ColumnElement[float]
    end: ColumnElement[float]
    """Equal to `start` for a moment, such as seven days ago."""


def read_period(text: str) -> Period | None:
    """Return the period that a date refers to, or None if the text is not a date."""
    if ago := AGO_PATTERN.fullmatch(text):
        moment = db_now() - float(int(ago[1]) * SECONDS_BY_UNIT[ago[2]])
        return Period(moment, moment)
    match = DATE_PATTERN.fullmatch(text)
    if match is None:
        return None
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    start = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    length_seconds = (
        SECONDS_BY_UNIT["d"] if not match["time"] else 1 if match["second"] else SECONDS_BY_UNIT["m"]
    )
    return Period(literal(start, Float(53)), literal(start + length_seconds, Float(53)))
