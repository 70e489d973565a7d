"""Packed points with their outline before them; what was packed is packed again."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _make_anew(sa.Column("outline", sa.LargeBinary(), nullable=False))


def downgrade() -> None:
    _make_anew()


def _make_anew(*outline: sa.Column[bytes]) -> None:
    """Columns behind `data` would be read through all of it."""
    op.drop_table("metric_block")
    op.create_table(
        "metric_block",
        sa.Column("run_id", sa.String(length=26), nullable=False),
        sa.Column("key_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("last_step", sa.Integer(), nullable=False),
        sa.Column("points", sa.Integer(), nullable=False),
        *outline,
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["key_id"], ["metric_key.id"], name=op.f("fk_metric_block_key_id_metric_key")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_metric_block_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", "key_id", "attempt", "number", name=op.f("pk_metric_block")),
    )
    op.execute("UPDATE attempt SET packed_step = -1")  # last, as trainers lock their run before their attempt
