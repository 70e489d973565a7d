"""Exclude imported objects from garbage collection, because a process keeps them until its end."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def freeze_gc() -> Iterator[None]:
    """Exclude objects created in this context from garbage collection, even at the end of the process.

    Importing torch and transformers creates hundreds of thousands of objects. Checking them repeatedly takes
    a fifth of the time of the import, a part of every later collection, and more than a second at exit.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
