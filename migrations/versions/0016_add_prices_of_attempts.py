"""An attempt keeps the price of its worker slot: a later change of the price does not change what it cost."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempt", sa.Column("slot_price", sa.Float(), nullable=True))
    op.add_column("attempt", sa.Column("currency", sa.String(length=3), nullable=True))


def downgrade() -> None:
    op.drop_column("attempt", "currency")
    op.drop_column("attempt", "slot_price")
