"""Browsers that are logged in, which can be logged out one by one."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

SECONDS = sa.Float(53)


def upgrade() -> None:
    op.create_table(
        "browser_session",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("user_agent", sa.Text(), nullable=False),
        sa.Column("created_at", SECONDS, nullable=False),
        sa.Column("seen_at", SECONDS, nullable=False),
        sa.Column("ends_at", SECONDS, nullable=False),
        sa.Column("ended_at", SECONDS),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_browser_session")),
    )


def downgrade() -> None:
    op.drop_table("browser_session")
