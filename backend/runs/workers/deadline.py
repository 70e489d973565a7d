"""Deadlines of workers, as people and batch systems write them."""

import re
from datetime import datetime, timedelta

CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})")

EARLIER = timedelta(hours=12)
"""A time of day that passed less than this ago is a deadline that was missed, not tomorrow's."""


def parse_deadline(text: str, now: datetime) -> datetime:
    """Return the moment that `03:55`, or an ISO 8601 date and time, means on this machine.

    It has the time zone of `now`; without one, both are read by the machine's clock, whose offset may change
    in between. Raises ValueError for a text that is neither.
    """
    if match := CLOCK.fullmatch(text):
        try:
            today = now.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
        except ValueError:
            raise ValueError(f"there is no time {text!r}; expected 00:00 to 23:59") from None
        if today <= now - EARLIER:
            return today + timedelta(days=1)
        return today
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"is {text!r}; expected a time such as 03:55 or 2026-11-24T03:55") from None
    local = moment.astimezone(now.tzinfo) if moment.tzinfo else moment
    return local.replace(tzinfo=now.tzinfo)
