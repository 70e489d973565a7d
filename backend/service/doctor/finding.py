"""A finding of `make doctor`: one line of its report."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from backend.base.errors import GrpoLabError


class Finding(NamedTuple):
    """One finding: the thing examined, its condition, and the remedy."""

    what: str
    level: Literal["ok", "warn", "bad"]
    """`bad`: something will not work; `warn`: it will, but worse than it could."""
    text: str

    @property
    def is_good(self) -> bool:
        """Whether nothing has to be done."""
        return self.level != "bad"


def ok(topic: str, text: str) -> Finding:
    """Return a finding that needs nothing to be done."""
    return Finding(topic, "ok", text)


def warn(topic: str, text: str) -> Finding:
    """Return a warning: it works, but worse than it could."""
    return Finding(topic, "warn", text)


def bad(topic: str, text: str) -> Finding:
    """Return a finding that must be fixed."""
    return Finding(topic, "bad", text)


def run_check(topic: str, check: Callable[[], None], text: str) -> Finding:
    """`text` when the check passes, else its complaint."""
    try:
        check()
    except GrpoLabError as error:
        return bad(topic, error.detail)
    return ok(topic, text)
