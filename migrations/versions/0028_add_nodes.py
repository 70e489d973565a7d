"""A run says how many nodes it needs, and a worker to which group of nodes it belongs."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("run", "attempt", "worker"):
        op.add_column(table, sa.Column("nodes", sa.Integer(), nullable=False, server_default="1"))
    op.create_table(
        "node",
        sa.Column("group_name", sa.String(128), primary_key=True),
        sa.Column("rank", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.String(64), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("devices", sa.Integer(), nullable=False),
        sa.Column("traits", sa.JSON(), nullable=False),
        sa.Column("work", sa.JSON(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("node")
    for table in ("worker", "attempt", "run"):
        op.drop_column(table, "nodes")
