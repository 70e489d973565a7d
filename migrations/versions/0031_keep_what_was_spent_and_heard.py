"""A push session says when it was heard of last, and a search what its deleted runs have cost."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("push_session", sa.Column("heard_at", sa.Float(53), nullable=False, server_default="0"))
    op.add_column("search", sa.Column("deleted_cost", sa.JSON(), nullable=False, server_default="{}"))


def downgrade() -> None:
    op.drop_column("search", "deleted_cost")
    op.drop_column("push_session", "heard_at")
