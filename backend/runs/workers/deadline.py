"""Parse the deadlines of workers, as users and batch systems write them."""

import re
from datetime import datetime, timedelta

CLOCK_PATTERN = re.compile(r"([0-9]{1,2}):([0-9]{2})")

MAX_MISSED = timedelta(hours=12)
"""Age of a time of day up to which it is a missed deadline, and not a time of the next day."""


def parse_deadline(text: str, now: datetime) -> datetime:
    """Return the time that `03:55`, or an ISO 8601 date and time, refers to on this machine.

    The result has the time zone of `now`. Without a time zone, both are local times, whose UTC offset may
    change in between. Raise ValueError if the text is neither.
    """
    if match := CLOCK_PATTERN.fullmatch(text):
        try:
            today = now.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
        except ValueError:
            raise ValueError(f"there is no time {text!r}; expected 00:00 to 23:59") from None
        if today <= now - MAX_MISSED:
            return today + timedelta(days=1)
        return today
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"is {text!r}; expected a time such as 03:55 or 2026-11-24T03:55") from None
    local = moment.astimezone(now.tzinfo) if moment.tzinfo else moment
    return local.replace(tzinfo=now.tzinfo)
