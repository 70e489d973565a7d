"""Sealed points: blocks of a new kind, which become the only copy.

The old blocks go; their rows are still there. The reconciler seals these bit by bit, each block in a
transaction that also removes its rows. An older version finds every point as a row again.
"""

import sqlalchemy as sa
from alembic import op

from backend.db.numbers import to_stored
from backend.metrics.block_codec import decode

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

BLOCKS = sa.table(
    "metric_block", *(sa.column(name) for name in ("run_id", "key_id", "attempt", "number", "data"))
)
METRICS = sa.table(
    "metric", *(sa.column(name) for name in ("run_id", "key_id", "step", "attempt", "kind", "value"))
)


def upgrade() -> None:
    _forget_blocks()


def downgrade() -> None:
    """Leave nothing out: a block that is damaged stops it."""
    connection = op.get_bind()
    columns = (BLOCKS.c.run_id, BLOCKS.c.key_id, BLOCKS.c.attempt, BLOCKS.c.number)
    for place in connection.execute(sa.select(*columns).order_by(*columns)).all():
        own = sa.and_(*(column == value for column, value in zip(columns, place, strict=True)))
        points = decode(bytes(connection.execute(sa.select(BLOCKS.c.data).where(own)).scalar_one()))
        same = {"run_id": place.run_id, "key_id": place.key_id, "attempt": place.attempt}
        rows = [
            {**same, "step": step, **to_stored(value)._asdict()}
            for step, value in zip(points.steps.tolist(), points.values.tolist(), strict=True)
        ]
        connection.execute(sa.insert(METRICS), rows)
    _forget_blocks()


def _forget_blocks() -> None:
    is_postgres = op.get_bind().dialect.name == "postgresql"
    op.execute("TRUNCATE metric_block" if is_postgres else "DELETE FROM metric_block")
    op.execute("UPDATE attempt SET packed_step = -1")  # last, as trainers lock their run before their attempt
