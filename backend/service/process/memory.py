"""Keeps the memory of a process that has many threads small: glibc keeps what large answers used."""

import ctypes
import threading
import time

PAUSE_SECONDS = 10.0
"""Seconds between two returns of memory; one takes about 2 ms with heaps of 50 MB, 30 ms with 370 MB."""

ARENAS = 2
"""Heaps of all threads together. By default each thread has one, and each keeps free what others need."""

M_ARENA_MAX = -8
"""The parameter's number in glibc's `malloc.h`."""


def limit_arenas() -> bool:
    """Let threads that begin from now on share a few heaps; whether they do. Does nothing without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(M_ARENA_MAX, ARENAS))


def return_memory() -> bool:
    """Give the system back what is free; whether there was something. Does nothing without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))


def keep_returning_memory() -> None:
    """Return memory to the system every few seconds, in a separate thread."""

    def run() -> None:
        while True:
            time.sleep(PAUSE_SECONDS)
            return_memory()

    threading.Thread(target=run, name="memory", daemon=True).start()
