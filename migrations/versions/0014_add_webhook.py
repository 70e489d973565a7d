"""The webhook remembers up to which event it has delivered; events are found by their kind."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

SECONDS = sa.Float(53)


def upgrade() -> None:
    op.create_table(
        "webhook",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("try_after", SECONDS, nullable=False),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.Column("delivered_at", SECONDS),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_webhook")),
    )
    op.create_index("ix_event_kind", "event", ["kind", "level"])


def downgrade() -> None:
    op.drop_index("ix_event_kind", "event")
    op.drop_table("webhook")
