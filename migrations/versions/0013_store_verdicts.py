"""Runs keep the verdict of their diagnosis, and checkpoints from before an onset say so."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("verdict", sa.String(length=16), nullable=True))
    op.add_column("run", sa.Column("onset_healthy", sa.Integer(), nullable=True))
    op.add_column("run", sa.Column("onset_sick", sa.Integer(), nullable=True))
    op.add_column("run", sa.Column("cause", sa.String(length=32), nullable=False, server_default=""))
    op.add_column("run", sa.Column("judged_step", sa.Integer(), nullable=True))
    op.create_index("ix_run_judged", "run", ["status", "judged_step", "last_step"])
    op.add_column("checkpoint", sa.Column("kept_for", sa.String(length=8), nullable=True))
    op.add_column("checkpoint", sa.Column("onset", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("checkpoint", "onset")
    op.drop_column("checkpoint", "kept_for")
    op.drop_index("ix_run_judged", "run")
    for column in ("judged_step", "cause", "onset_sick", "onset_healthy", "verdict"):
        op.drop_column("run", column)
