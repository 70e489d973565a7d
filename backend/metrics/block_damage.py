"""Damaged blocks that this process has found: a reader records them and continues with the other blocks.

The reconciler writes what was noticed into the history of the runs.
"""

import logging
import threading
from typing import NamedTuple

logger = logging.getLogger(__name__)


class BlockPlace(NamedTuple):
    """A block and the steps that it may hold."""

    run: str
    key: int
    attempt: int
    number: int
    first_step: int
    last_step: int
    is_outline: bool = False
    """Whether its outline is damaged and the points themselves are whole."""


_noticed: dict[BlockPlace, str] = {}
_told: set[BlockPlace] = set()
_lock = threading.Lock()


def record_damage(block: BlockPlace, reason: str) -> None:
    """Record a block that could not be read, and the reason."""
    with _lock:
        if block in _told or block in _noticed:
            return
        _noticed[block] = reason
    description = "the outline of block" if block.is_outline else "block"
    logger.error(
        "%s %d of metric %d of run %s is damaged: %s", description, block.number, block.key, block.run, reason
    )


def recorded_damage() -> dict[BlockPlace, str]:
    """Return the damaged blocks that were noticed but not yet reported."""
    with _lock:
        return dict(_noticed)


def forget_damage(places: dict[BlockPlace, str]) -> None:
    """Forget these damaged blocks after they were reported."""
    with _lock:
        _told.update(places)
        for block in places:
            _noticed.pop(block, None)
