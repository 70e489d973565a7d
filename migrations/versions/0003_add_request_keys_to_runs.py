"""A run that a request cloned, forked or evaluated knows that request: sent again it makes nothing twice."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("idempotency_key", sa.String(length=200), nullable=True))
    op.add_column("run", sa.Column("request_hash", sa.String(length=64), nullable=True))
    op.create_index("ix_run_idempotency_key", "run", ["idempotency_key"], unique=True)


def downgrade() -> None:
    op.drop_index("ix_run_idempotency_key", "run")
    op.drop_column("run", "request_hash")
    op.drop_column("run", "idempotency_key")
