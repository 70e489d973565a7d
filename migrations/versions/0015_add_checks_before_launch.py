"""A run may check a config before its launch: what it checks, and what it found."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("check_hash", sa.String(length=64), nullable=True))
    op.add_column("run", sa.Column("check_report", sa.JSON(), nullable=True))
    op.create_index("ix_run_check_hash", "run", ["check_hash"])


def downgrade() -> None:
    op.drop_index("ix_run_check_hash", "run")
    op.drop_column("run", "check_report")
    op.drop_column("run", "check_hash")
