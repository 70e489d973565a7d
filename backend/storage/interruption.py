"""Interrupt the database statements of a request after its client has disconnected."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

INTERRUPT_INTERVAL_SECONDS = 0.05
"""Seconds between interrupts of a statement, because one that has not started misses the interrupt."""


@dataclass(slots=True)
class ClientWait:
    """The state of a client that waits for the response to its request."""

    seconds: float
    heard_at: float = field(default_factory=time.monotonic)
    is_over: bool = False
    """Whether the client has stopped waiting."""
    interrupts: list[Callable[[], None]] = field(default_factory=list)
    """Functions that interrupt the running statements."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Lock held during an interrupt, so that it does not hit the next statement on the connection."""

    def end(self) -> None:
        """Interrupt the statements of the request because its client has disconnected."""
        self.is_over = True
        if self._interrupt():
            threading.Thread(target=self._interrupt_until_ended, name="interruption", daemon=True).start()

    def _interrupt_until_ended(self) -> None:
        while self._interrupt():
            time.sleep(INTERRUPT_INTERVAL_SECONDS)

    def _interrupt(self) -> bool:
        """Interrupt the running statements, and return whether there were any."""
        with self.lock:
            for interrupt in self.interrupts:
                with suppress(Exception):  # the connection may have just been closed
                    interrupt()
            return bool(self.interrupts)


current_wait: ContextVar[ClientWait] = ContextVar("wait")


@contextmanager
def interruptible(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call `interrupt` from another thread if the client disconnects during the `with` block."""
    wait = current_wait.get(None)
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
