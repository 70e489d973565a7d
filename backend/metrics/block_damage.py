"""Damaged blocks that this process has met: a reader leaves a note and goes on with the points of the others.

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


def notice(place: BlockPlace, reason: str) -> None:
    """Remember a block that could not be read, and why."""
    with _lock:
        if place in _told or place in _noticed:
            return
        _noticed[place] = reason
    what = "the outline of block" if place.is_outline else "block"
    logger.error(
        "%s %d of metric %d of run %s is damaged: %s", what, place.number, place.key, place.run, reason
    )


def noticed() -> dict[BlockPlace, str]:
    """The damaged blocks that were noticed and are not told yet."""
    with _lock:
        return dict(_noticed)


def told(places: dict[BlockPlace, str]) -> None:
    """Forget these: they are written down."""
    with _lock:
        _told.update(places)
        for place in places:
            _noticed.pop(place, None)
