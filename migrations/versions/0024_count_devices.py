"""A run says how many devices it needs, and an attempt how many it held."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("run", "attempt"):
        op.add_column(table, sa.Column("devices", sa.Integer(), nullable=False, server_default="1"))


def downgrade() -> None:
    for table in ("attempt", "run"):
        op.drop_column(table, "devices")
