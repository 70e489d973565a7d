"""Points are packed in blocks beside their rows, for reading: a curve of a million takes a blink."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "metric_block",
        sa.Column("run_id", sa.String(length=26), nullable=False),
        sa.Column("key_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("last_step", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["key_id"], ["metric_key.id"], name=op.f("fk_metric_block_key_id_metric_key")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_metric_block_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", "key_id", "attempt", "number", name=op.f("pk_metric_block")),
    )
    op.add_column("attempt", sa.Column("packed_step", sa.Integer(), server_default="-1", nullable=False))
    op.create_index("ix_attempt_packed_step", "attempt", ["packed_step"])


def downgrade() -> None:
    op.drop_index("ix_attempt_packed_step", "attempt")
    op.drop_column("attempt", "packed_step")
    op.drop_table("metric_block")
