"""How long the client of a request waits, and what ends the work that is done for it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(slots=True)
class Wait:
    """How long the client of one request waits."""

    seconds: float
    heard_at: float = field(default_factory=time.monotonic)
    is_over: bool = False
    """Whether nobody waits any more."""
    interrupts: list[Callable[[], None]] = field(default_factory=list)
    """What ends the statements that run."""

    def end(self) -> None:
        """Nobody waits any more."""
        self.is_over = True
        for interrupt in list(self.interrupts):
            with suppress(Exception):  # of a connection that has just been closed
                interrupt()


current: ContextVar[Wait] = ContextVar("wait")


@contextmanager
def interruptible(interrupt: Callable[[], None]) -> Iterator[None]:
    """Meanwhile `interrupt` is called, by another thread, once nobody waits for the request any more."""
    wait = current.get(None)
    if wait is None:
        yield
        return
    wait.interrupts.append(interrupt)
    if wait.is_over:
        interrupt()
    try:
        yield
    finally:
        wait.interrupts.remove(interrupt)
