"""Check all sealed blocks, for `make doctor`, backups and audits."""

import math
import time
from collections.abc import Iterator
from typing import Any

import zstandard
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.metrics import blocks
from backend.metrics.block_codec import BlockDamaged, decode_row, read_content
from backend.metrics.block_damage import BlockPlace
from backend.storage.models import MetricBlock, MetricKey

BLOCKS_PER_FETCH = 1_000


DAMAGE_MARK = "the block that holds them is damaged"
"""Text that identifies the events about lost points."""


class OutlineDamaged(BlockDamaged):
    """The outline of a block is damaged, but not its points."""


def find_damaged_blocks(
    session: Session, run: str | None = None, *, deadline: float = math.inf
) -> Iterator[tuple[BlockPlace, str]]:
    """Yield each damaged block of a run, or of all runs, with the reason.

    The check ends at the time `deadline` of the monotonic clock.
    """
    table = MetricBlock
    query = select(
        table.run_id,
        table.key_id,
        table.attempt,
        table.number,
        table.last_step,
        table.points,
        table.outline,
        table.data,
    )
    query = query if run is None else query.where(table.run_id == run)
    options = {"binary": True, "yield_per": BLOCKS_PER_FETCH}
    reader = zstandard.ZstdDecompressor()
    for row in session.execute(query, execution_options=options):
        if time.monotonic() > deadline:
            return
        owner, key, attempt, number, last_step = row[:5]
        try:
            _check(row, reader)
        except BlockDamaged as error:
            block = BlockPlace(owner, key, attempt, number, number * blocks.BLOCK_STEPS, last_step)
            yield block._replace(is_outline=isinstance(error, OutlineDamaged)), str(error)


def _check(row: Any, reader: zstandard.ZstdDecompressor) -> None:
    number, last_step, points, outline, data = row[3:]
    first_step = number * blocks.BLOCK_STEPS
    decode_row(
        data,
        points=points,
        first=first_step,
        last=min(last_step, first_step + blocks.BLOCK_STEPS - 1),
        reader=reader,
    )
    _check_outline(outline, points, reader)


def _check_outline(outline: bytes, points: int, reader: zstandard.ZstdDecompressor) -> None:
    try:
        if outline:
            read_content(outline, reader, points=points)
    except BlockDamaged as error:
        raise OutlineDamaged(str(error)) from None


def damage_sentence(session: Session, block: BlockPlace, reason: str) -> str:
    """Return a message about the lost points or the damaged outline of a block."""
    name = session.scalar(select(MetricKey.name).where(MetricKey.id == block.key)) or f"metric {block.key}"
    if block.is_outline:
        return (
            f"{name}, steps {block.first_step} to {block.last_step} of attempt {block.attempt}: the outline "
            f"that long charts draw is damaged ({reason}); the points themselves are whole and drawn instead"
        )
    return (
        f"{name}, steps {block.first_step} to {block.last_step} of attempt {block.attempt}: {DAMAGE_MARK} "
        f"({reason}); a backup may have them"
    )
