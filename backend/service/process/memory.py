"""Limit the memory of a process with many threads, because glibc keeps memory that large responses used."""

import ctypes
import threading
import time

PAUSE_SECONDS = 10.0
"""Seconds between two releases of memory, each of which takes about 2 ms for heaps of 50 MB, 30 ms for 370
MB.
"""

MAX_ARENAS = 2
"""Number of heaps for all threads. By default each thread has one, with free memory that others cannot use.
"""

M_ARENA_MAX = -8
"""Number of the parameter in glibc's `malloc.h`."""


def limit_arenas() -> bool:
    """Let new threads share a few heaps; return whether that worked. Does nothing without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(M_ARENA_MAX, MAX_ARENAS))


def return_memory() -> bool:
    """Return free memory to the system; return whether there was any. Does nothing without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))


def keep_returning_memory() -> None:
    """Return memory to the system every few seconds, in a separate thread."""

    def run() -> None:
        while True:
            time.sleep(PAUSE_SECONDS)
            return_memory()

    threading.Thread(target=run, name="memory", daemon=True).start()
