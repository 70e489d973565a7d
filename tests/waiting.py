"""Waiting for conditions in other processes."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


class TookTooLong(Exception):
    """A condition did not become true in time."""


def wait_for(
    condition: Callable[[], Found], description: str = "a condition was not met", *, seconds: float = 180.0
) -> Found:
    """Return the first true value of the condition. The limit is long, because machines may be busy."""
    deadline = time.monotonic() + seconds
    while not (outcome := condition()):
        if time.monotonic() > deadline:
            raise TookTooLong(f"{description}: not within {seconds:.0f} s")
        time.sleep(0.02)
    return outcome
