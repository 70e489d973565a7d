"""Trials of remedies against what broke a run, with their verdicts."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

SECONDS = sa.Float(53)


def upgrade() -> None:
    op.create_table(
        "trial",
        sa.Column("id", sa.String(26), nullable=False),
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("experiment_id", sa.String(26)),
        sa.Column("found", sa.String(16), nullable=False),
        sa.Column("cause", sa.String(32), nullable=False),
        sa.Column("onset_healthy", sa.Integer()),
        sa.Column("onset_sick", sa.Integer()),
        sa.Column("fork_run", sa.String(26)),
        sa.Column("fork_step", sa.Integer(), nullable=False),
        sa.Column("wanted_step", sa.Integer(), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("seeds", sa.JSON(), nullable=False),
        sa.Column("arms", sa.JSON(), nullable=False),
        sa.Column("verdict", sa.JSON(), nullable=False),
        sa.Column("judged_at", SECONDS),
        sa.Column("created_at", SECONDS, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_trial_run_id_run")),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiment.id"], name=op.f("fk_trial_experiment_id_experiment")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trial")),
    )
    op.create_index("ix_trial_run", "trial", ["run_id"])
    op.create_index("ix_trial_experiment", "trial", ["experiment_id"])


def downgrade() -> None:
    op.drop_table("trial")
