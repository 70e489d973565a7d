"""Damaged blocks that this process has found. A reader records them and continues with the other blocks.

The reconciler writes them as events of the runs.
"""

import logging
import threading
from typing import NamedTuple

logger = logging.getLogger(__name__)


class BlockPlace(NamedTuple):
    """The identity of a block and the range of its steps."""

    run: str
    key: int
    attempt: int
    number: int
    first_step: int
    last_step: int
    is_outline: bool = False
    """Whether only the outline is damaged, and not the points."""


_recorded: dict[BlockPlace, str] = {}
_reported: set[BlockPlace] = set()
_lock = threading.Lock()


def record_damage(block: BlockPlace, reason: str) -> None:
    """Record and log a damaged block with the reason, unless it is already known."""
    with _lock:
        if block in _reported or block in _recorded:
            return
        _recorded[block] = reason
    description = "the outline of block" if block.is_outline else "block"
    logger.error(
        "%s %d of metric %d of run %s is damaged: %s", description, block.number, block.key, block.run, reason
    )


def recorded_damage() -> dict[BlockPlace, str]:
    """Return the damaged blocks that were recorded but not reported yet, with the reasons."""
    with _lock:
        return dict(_recorded)


def forget_damage(blocks: dict[BlockPlace, str]) -> None:
    """Mark these damaged blocks as reported."""
    with _lock:
        _reported.update(blocks)
        for block in blocks:
            _recorded.pop(block, None)
