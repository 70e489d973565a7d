"""Interruption of a request's database work after its client has disconnected."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

AGAIN_SECONDS = 0.05
"""Seconds until a statement is interrupted again, because one that has not begun misses the interrupt."""


@dataclass(slots=True)
class Wait:
    """The wait of one request's client for its answer."""

    seconds: float
    heard_at: float = field(default_factory=time.monotonic)
    is_over: bool = False
    """Whether the client has stopped waiting."""
    interrupts: list[Callable[[], None]] = field(default_factory=list)
    """Functions that end the running statements."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a statement is interrupted, so that it is not the next one on its connection."""

    def end(self) -> None:
        """Interrupt the request's statements because its client has disconnected."""
        self.is_over = True
        if self._interrupt():
            threading.Thread(target=self._interrupt_until_ended, name="interruption", daemon=True).start()

    def _interrupt_until_ended(self) -> None:
        while self._interrupt():
            time.sleep(AGAIN_SECONDS)

    def _interrupt(self) -> bool:
        """Interrupt the running statements; return whether there were any."""
        with self.lock:
            for interrupt in self.interrupts:
                with suppress(Exception):  # of a connection that has just been closed
                    interrupt()
            return bool(self.interrupts)


current: ContextVar[Wait] = ContextVar("wait")


@contextmanager
def interruptible(interrupt: Callable[[], None]) -> Iterator[None]:
    """Let another thread call `interrupt` if the client disconnects during the `with` block."""
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
