"""A finding of `make doctor`, which is one line of its report."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from backend.base.errors import GrpoLabError


class Finding(NamedTuple):
    """A finding: the topic, its condition, and what to do."""

    topic: str
    level: Literal["ok", "warn", "bad"]
    """`bad` if something will not work; `warn` if it will work, but not as well as possible."""
    text: str

    @property
    def is_good(self) -> bool:
        """Whether nothing must be fixed."""
        return self.level != "bad"


def ok(topic: str, text: str) -> Finding:
    """Return a finding that requires no action."""
    return Finding(topic, "ok", text)


def warn(topic: str, text: str) -> Finding:
    """Return a warning about something that works, but not as well as possible."""
    return Finding(topic, "warn", text)


def bad(topic: str, text: str) -> Finding:
    """Return a finding about something that must be fixed."""
    return Finding(topic, "bad", text)


def run_check(topic: str, check: Callable[[], None], text: str) -> Finding:
    """Return a good finding with `text`, or a bad one with the error that the check raises."""
    try:
        check()
    except GrpoLabError as error:
        return bad(topic, error.detail)
    return ok(topic, text)
