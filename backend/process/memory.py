"""Return of free memory to the system: glibc keeps what large answers have used, in each thread's arena."""

import ctypes
import threading
import time

PAUSE_SECONDS = 10.0
"""A return takes about a millisecond."""


def return_memory() -> bool:
    """Give the system back what is free; whether there was something. Does nothing without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))


def keep_returning_memory() -> None:
    """Return memory every few seconds from now on, in a thread of its own."""
    threading.Thread(target=_return_again_and_again, name="memory", daemon=True).start()


def _return_again_and_again() -> None:
    while True:
        time.sleep(PAUSE_SECONDS)
        return_memory()
