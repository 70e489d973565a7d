"""Runs that were imported from logs of other trainers say which trainer it was, and from which file."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("origin", sa.String(length=32), nullable=False, server_default=""))
    op.add_column("run", sa.Column("origin_file", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("run", "origin_file")
    op.drop_column("run", "origin")
