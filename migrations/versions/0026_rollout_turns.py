"""A completion says which tools it called, and what they answered."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rollout", sa.Column("turns", sa.JSON(), nullable=False, server_default="[]"))


def downgrade() -> None:
    op.drop_column("rollout", "turns")
