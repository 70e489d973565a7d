"""The first schema: experiments, runs and everything a run leaves behind."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "experiment",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiment")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_experiment_idempotency_key")),
    )
    op.create_table(
        "metric",
        sa.Column("run_id", sa.String(length=26), nullable=False),
        sa.Column("key_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("value", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "key_id", "step", "attempt", name=op.f("pk_metric")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "metric_key",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metric_key")),
        sa.UniqueConstraint("name", name=op.f("uq_metric_key_name")),
    )
    op.create_table(
        "singleton",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("until", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_singleton")),
    )
    op.create_table(
        "worker",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("device", sa.String(length=64), nullable=False),
        sa.Column("device_name", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("run_id", sa.String(length=26), nullable=True),
        sa.Column("started_at", sa.Float(precision=53), nullable=False),
        sa.Column("seen_at", sa.Float(precision=53), nullable=False),
        sa.Column("stats", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_worker")),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("experiment_id", sa.String(length=26), nullable=True),
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("config_hash", sa.String(length=64), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("wish", sa.String(length=8), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.String(length=64), nullable=True),
        sa.Column("lease_until", sa.Float(precision=53), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("run_after", sa.Float(precision=53), nullable=False),
        sa.Column("own_failures", sa.Integer(), nullable=False),
        sa.Column("last_step", sa.Integer(), nullable=False),
        sa.Column("progress_at", sa.Float(precision=53), nullable=True),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("parent_run", sa.String(length=26), nullable=True),
        sa.Column("fork_step", sa.Integer(), nullable=True),
        sa.Column("archived_at", sa.Float(precision=53), nullable=True),
        sa.Column("deleted_at", sa.Float(precision=53), nullable=True),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.Column("queued_at", sa.Float(precision=53), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=True),
        sa.Column("finished_at", sa.Float(precision=53), nullable=True),
        sa.Column("changed_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiment.id"], name=op.f("fk_run_experiment_id_experiment")
        ),
        sa.ForeignKeyConstraint(["parent_run"], ["run.id"], name=op.f("fk_run_parent_run_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
    )
    op.create_index("ix_run_changed", "run", ["changed_at"], unique=False)
    op.create_index("ix_run_claim", "run", ["status", "priority", "queued_at", "id"], unique=False)
    op.create_index("ix_run_created", "run", ["created_at", "id"], unique=False)
    op.create_index("ix_run_experiment", "run", ["experiment_id"], unique=False)

    op.create_table(
        "attempt",
        sa.Column("run_id", sa.String(length=26), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("from_step", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.String(length=64), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("device", sa.String(length=64), nullable=False),
        sa.Column("versions", sa.JSON(), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at", sa.Float(precision=53), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_attempt_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_attempt")),
    )
    op.create_table(
        "checkpoint",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("run_id", sa.String(length=26), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("bytes_total", sa.BigInteger(), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_checkpoint_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoint")),
    )
    op.create_index("ix_checkpoint_run_step", "checkpoint", ["run_id", "step"], unique=False)

    op.create_table(
        "event",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("run_id", sa.String(length=26), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("level", sa.String(length=8), nullable=False),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_event_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_event_run", "event", ["run_id", "id"], unique=False)

    op.create_table(
        "log_chunk",
        sa.Column("run_id", sa.String(length=26), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_log_chunk_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", "attempt", "number", name=op.f("pk_log_chunk")),
    )
    op.create_table(
        "rollout_group",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("run_id", sa.String(length=26), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("prompt_index", sa.Integer(), nullable=False),
        sa.Column("prompt_id", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("prompt", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("reward_mean", sa.Float(precision=53), nullable=True),
        sa.Column("reward_std", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_rollout_group_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollout_group")),
    )
    op.create_index(
        "ix_rollout_group_run_step", "rollout_group", ["run_id", "step", "kind", "prompt_index"], unique=False
    )

    op.create_table(
        "rollout",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("group_id", sa.String(length=26), nullable=False),
        sa.Column("position", sa.SmallInteger(), nullable=False),
        sa.Column("text", sa.LargeBinary(), nullable=False),
        sa.Column("clean_text", sa.Text(), nullable=False),
        sa.Column("reward", sa.Float(precision=53), nullable=True),
        sa.Column("rewards", sa.JSON(), nullable=False),
        sa.Column("advantage", sa.Float(precision=53), nullable=True),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("finish_reason", sa.String(length=16), nullable=False),
        sa.Column("correct", sa.Boolean(), nullable=True),
        sa.Column("non_finite", sa.JSON(), nullable=False),
        sa.Column("flags", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["rollout_group.id"],
            name=op.f("fk_rollout_group_id_rollout_group"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollout")),
    )
    op.create_index("ix_rollout_group", "rollout", ["group_id", "position"], unique=False)

    op.create_table(
        "rollout_tokens",
        sa.Column("group_id", sa.String(length=26), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["rollout_group.id"],
            name=op.f("fk_rollout_tokens_group_id_rollout_group"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("group_id", name=op.f("pk_rollout_tokens")),
    )


def downgrade() -> None:
    op.drop_table("rollout_tokens")
    op.drop_index("ix_rollout_group", "rollout")

    op.drop_table("rollout")
    op.drop_index("ix_rollout_group_run_step", "rollout_group")

    op.drop_table("rollout_group")
    op.drop_table("log_chunk")
    op.drop_index("ix_event_run", "event")

    op.drop_table("event")
    op.drop_index("ix_checkpoint_run_step", "checkpoint")

    op.drop_table("checkpoint")
    op.drop_table("attempt")
    op.drop_index("ix_run_experiment", "run")
    op.drop_index("ix_run_created", "run")
    op.drop_index("ix_run_claim", "run")
    op.drop_index("ix_run_changed", "run")

    op.drop_table("run")
    op.drop_table("worker")
    op.drop_table("singleton")
    op.drop_table("metric_key")
    op.drop_table("metric")
    op.drop_table("experiment")
