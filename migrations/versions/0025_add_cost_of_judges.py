"""An attempt keeps what its judges and reward models cost, in its currency."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempt", sa.Column("judge_cost", sa.Float(precision=53), nullable=True))


def downgrade() -> None:
    op.drop_column("attempt", "judge_cost")
