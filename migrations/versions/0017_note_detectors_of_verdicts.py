"""A verdict notes the version of the detectors that gave it: newer ones judge ended runs again."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("judged_by", sa.Integer(), nullable=False, server_default="0"))
    op.drop_index("ix_run_judged", "run")
    op.create_index("ix_run_judged", "run", ["status", "judged_step", "last_step", "judged_by"])


def downgrade() -> None:
    op.drop_index("ix_run_judged", "run")
    op.create_index("ix_run_judged", "run", ["status", "judged_step", "last_step"])
    op.drop_column("run", "judged_by")
