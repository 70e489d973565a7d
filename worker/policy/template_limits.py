"""Limits for chat templates: they are programs of whoever made the model, and run in the trainer.

transformers renders them in Jinja's sandbox, which keeps them from files, modules and attributes of objects,
but not from loops without end or from filling the memory.
"""

import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

MOST_SECONDS = 20.0
MOST_BYTES = 2 << 30
"""Memory beyond what the process has when the template begins."""


STATM = Path("/proc/self/statm")


class TemplateOverLimit(Exception):
    """A template that takes more time or memory than it may."""


@contextmanager
def limited() -> Iterator[None]:
    """Raise TemplateOverLimit where the body takes too much time or memory.

    Time is limited in the main thread, where trainers render: a signal ends it. Memory is limited on Linux.
    """
    try:
        with _less_memory(), _alarm():
            yield
    except MemoryError:
        raise TemplateOverLimit(f"it takes more than {MOST_BYTES:,} bytes of memory") from None


@contextmanager
def _less_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if STATM.exists():
        now = int(STATM.read_text().split()[5]) * resource.getpagesize()  # what RLIMIT_DATA counts
        most = now + MOST_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most if soft < 0 else min(soft, most), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@contextmanager
def _alarm() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _too_slow)
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _too_slow(_number: int, _frame: FrameType | None) -> None:
    raise TemplateOverLimit(f"it takes more than {MOST_SECONDS:g} seconds")
