"""A run that is deleted for ever is marked first; its rows and files go in pieces, and a restart goes on."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("deleting_at", sa.Float(precision=53), nullable=True))
    op.create_index("ix_run_deleting", "run", ["deleting_at"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_run_deleting", "run")
    op.drop_column("run", "deleting_at")
