"""Packed points without the steps where none is missing; what was packed is packed again."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _unpack()
    op.add_column("metric_block", sa.Column("points", sa.Integer(), nullable=False))


def downgrade() -> None:
    _unpack()
    op.drop_column("metric_block", "points")


def _unpack() -> None:
    op.execute("UPDATE attempt SET packed_step = -1")
    op.execute("DELETE FROM metric_block")
