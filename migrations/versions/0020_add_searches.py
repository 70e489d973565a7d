"""Searches: experiments whose configurations are chosen one after the other, and these configurations."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

SECONDS = sa.Float(53)


def upgrade() -> None:
    op.create_table(
        "search",
        sa.Column("experiment_id", sa.String(26), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("ended_at", SECONDS, nullable=True),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiment.id"], name=op.f("fk_search_experiment_id_experiment")
        ),
        sa.PrimaryKeyConstraint("experiment_id", name=op.f("pk_search")),
    )
    op.create_index(op.f("ix_search_status"), "search", ["status"])
    op.create_table(
        "search_trial",
        sa.Column("experiment_id", sa.String(26), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("point", sa.JSON(), nullable=False),
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("run_id", sa.String(26), nullable=True),
        sa.Column("refused", sa.Text(), nullable=False),
        sa.Column("judged_step", sa.Integer(), nullable=False),
        sa.Column("pruned", sa.Text(), nullable=False),
        sa.Column("chosen", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["search.experiment_id"],
            name=op.f("fk_search_trial_experiment_id_search"),
        ),
        sa.PrimaryKeyConstraint("experiment_id", "number", name=op.f("pk_search_trial")),
    )


def downgrade() -> None:
    op.drop_table("search_trial")
    op.drop_index(op.f("ix_search_status"), "search")
    op.drop_table("search")
