"""Rollouts of a suite are of the kind `eval/<suite>`. SQLite does not limit the length of a text."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("rollout_group", "kind", type_=sa.String(length=40), existing_nullable=False)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DELETE FROM rollout_group WHERE kind LIKE 'eval/%'")
        op.alter_column("rollout_group", "kind", type_=sa.String(length=8), existing_nullable=False)
