"""Freezing of the garbage collector after imports: what a process imports stays until its end."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def freeze_gc() -> Iterator[None]:
    """Keep objects made in this context from the garbage collector, even when the process ends.

    Importing torch and transformers makes hundreds of thousands of objects. Searching them again and again is
    a fifth of the time of the import, a part of every later search, and more than a second of the end.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
