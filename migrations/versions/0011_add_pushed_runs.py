"""Runs that another trainer's client pushes: whose they are, and how far each of its sessions is stored."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("writer", sa.String(length=64), nullable=True))
    op.add_column("run", sa.Column("writer_key", sa.String(length=128), nullable=True))
    op.create_index("ix_run_writer_key", "run", ["writer", "writer_key"], unique=True)
    op.create_table(
        "push_session",
        sa.Column("run_id", sa.String(length=26), nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("stored", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_push_session_run_id_run"),
        sa.PrimaryKeyConstraint("run_id", "id", name="pk_push_session"),
    )


def downgrade() -> None:
    op.drop_table("push_session")
    op.drop_index("ix_run_writer_key", "run")
    op.drop_column("run", "writer_key")
    op.drop_column("run", "writer")
