"""Interruption of a request's database work once nobody waits for its answer."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

AGAIN_SECONDS = 0.05
"""After this long a statement is interrupted again: one that had not quite begun did not hear of it."""


@dataclass(slots=True)
class Wait:
    """The time that the client of one request waits."""

    seconds: float
    heard_at: float = field(default_factory=time.monotonic)
    is_over: bool = False
    """Whether nobody waits any more."""
    interrupts: list[Callable[[], None]] = field(default_factory=list)
    """What ends the statements that run."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a statement is interrupted, so that it is not the next one on its connection."""

    def end(self) -> None:
        """Interrupt the request's statements: its client is gone."""
        self.is_over = True
        if self._interrupt():
            threading.Thread(target=self._interrupt_until_ended, name="interruption", daemon=True).start()

    def _interrupt_until_ended(self) -> None:
        while self._interrupt():
            time.sleep(AGAIN_SECONDS)

    def _interrupt(self) -> bool:
        """Interrupt what runs; whether there was anything."""
        with self.lock:
            for interrupt in self.interrupts:
                with suppress(Exception):  # of a connection that has just been closed
                    interrupt()
            return bool(self.interrupts)


current: ContextVar[Wait] = ContextVar("wait")


@contextmanager
def interruptible(interrupt: Callable[[], None]) -> Iterator[None]:
    """Meanwhile `interrupt` is called, by another thread, once nobody waits for the request any more."""
    wait = current.get(None)
    if wait is None:
        yield
        return
    with wait.lock:
        wait.interrupts.append(interrupt)
    if wait.is_over:
        wait.end()
    try:
        yield
    finally:
        with wait.lock:
            wait.interrupts.remove(interrupt)
