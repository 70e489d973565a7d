"""The push sessions of a run are counted: what an older one still sends is not the newest of its run."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("push_session", sa.Column("number", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("push_session", "number")
