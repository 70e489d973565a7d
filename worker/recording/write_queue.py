"""The bounded queue between the training thread and the writer thread."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

MAX_ITEMS = 2_000
MAX_BYTES = 256_000_000
"""Maximum number of queued bytes while the database is unavailable. Beyond it, training waits."""

MAX_BATCH = 200
"""Maximum number of items taken at once, which is the size of a transaction."""

LULL_SECONDS = 0.8
"""Additional seconds for which the writer waits for a lull."""

IDLE_SECONDS = 0.5
"""Seconds without items after which the writer is idle and may do other work."""

LOOK_SECONDS = 0.1
"""Seconds between two checks of the writer for items."""

Item = TypeVar("Item")


class WriteQueue(Generic[Item]):
    """An ordered queue of items to be written to SQL.

    A failure of the writer is raised in every caller that puts or waits.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting_items: deque[tuple[Item, int]] = deque()
        self._bytes = 0
        self._put = 0
        self._held = 0
        self._written = 0
        self._is_lull = self._has_lulls = False
        self._is_urgent = False
        self._is_closed = False
        self._failure: BaseException | None = None

    def put(self, item: Item, size: int) -> None:
        """Queue an item of about `size` bytes. This blocks only if the queue is full."""
        with self._changed:
            if self._is_full(size):
                logger.warning("the database has not answered for long: training waits for it")
                self._wait_until(lambda: not self._is_full(size))
            self._raise_failure()
            # Do not wake the writer, which would take the interpreter from the training thread immediately.
            self._waiting_items.append((item, size))
            self._bytes += size
            self._put += 1

    @contextmanager
    def allow_writes(self) -> Iterator[None]:
        """Mark a period in which the writer may work, because training does not need the interpreter."""
        with self._changed:
            self._is_lull = self._has_lulls = True
            self._changed.notify_all()
        try:
            yield
        finally:
            self._is_lull = False

    def _is_full(self, size: int) -> bool:
        if not self._waiting_items:
            return False
        return len(self._waiting_items) >= MAX_ITEMS or self._bytes + size > MAX_BYTES

    def flush(self) -> None:
        """Wait until all items that were put are written."""
        with self._changed:
            put_count = self._put
            self._is_urgent = True
            self._changed.notify_all()
            self._wait_until(lambda: self._written >= put_count)
        self._raise_failure()

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        self._held += 1
        self._changed.wait_for(lambda: self._failure is not None or condition())
        self._held -= 1

    @property
    def is_holding(self) -> bool:
        """True if a caller is blocked until more items are written."""
        return self._held > 0

    def close(self) -> None:
        """Close the queue. No items may be added afterwards."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def take(self, not_before: float) -> list[Item] | None:
        """Return queued items after `not_before`, in a lull or soon after it, or immediately if a caller
        flushes.

        Return [] when idle, and None at the end.
        """
        with self._changed:
            self._await_items(not_before)
            if not self._waiting_items:
                self._is_urgent = False
                return None if self._is_closed else []
            entries = [self._waiting_items.popleft() for _ in range(min(MAX_BATCH, len(self._waiting_items)))]
            self._bytes -= sum(size for _, size in entries)
            self._is_urgent = self._is_urgent and bool(self._waiting_items)
            self._changed.notify_all()
        return [item for item, _ in entries]

    def _await_items(self, not_before: float) -> None:
        idle_at = time.monotonic() + IDLE_SECONDS
        while not (self._is_urgent or self._is_closed):
            remaining = (self._due(not_before) if self._waiting_items else idle_at) - time.monotonic()
            if remaining <= 0:
                return
            self._changed.wait(min(remaining, LOOK_SECONDS))

    def _due(self, not_before: float) -> float:
        may_expect_lull = self._has_lulls and not self._is_lull and not self.is_holding
        return not_before + LULL_SECONDS if may_expect_lull else not_before

    def mark_written(self, count: int) -> None:
        """Mark the oldest `count` taken items as written."""
        with self._changed:
            self._written += count
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Stop writing, and store the reason."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()
