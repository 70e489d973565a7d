"""The first supported schema.

Revision: 0101, after nothing: lower numbers were those of unreleased versions.
"""

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = None
branch_labels = None
depends_on = None

SECONDS = sa.Float(53)

LISTED = sa.text("archived_at IS NULL AND deleted_at IS NULL AND deleting_at IS NULL")
DOOMED = sa.text("deleting_at IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "browser_session",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("user_agent", sa.Text(), nullable=False),
        sa.Column("created_at", SECONDS, nullable=False),
        sa.Column("seen_at", SECONDS, nullable=False),
        sa.Column("ends_at", SECONDS, nullable=False),
        sa.Column("ended_at", SECONDS, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_browser_session")),
    )
    op.create_table(
        "experiment",
        sa.Column("id", sa.String(26), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("idempotency_key", sa.String(200), nullable=True),
        sa.Column("request_hash", sa.String(64), nullable=False),
        sa.Column("created_at", SECONDS, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiment")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_experiment_idempotency_key")),
    )
    op.create_table(
        "group_tally",
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("prompt_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("prompt_id", sa.Text(), nullable=False),
        sa.Column("marks", sa.Integer(), nullable=False),
        sa.Column("reward", SECONDS, nullable=True),
        sa.Column("completions", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "run_id", "kind", "step", "prompt_index", "attempt", "number", name=op.f("pk_group_tally")
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "metric",
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("key_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("value", SECONDS, nullable=True),
        sa.PrimaryKeyConstraint("run_id", "key_id", "step", "attempt", name=op.f("pk_metric")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "metric_key",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metric_key")),
        sa.UniqueConstraint("name", name=op.f("uq_metric_key_name")),
    )
    op.create_table(
        "node",
        sa.Column("group_name", sa.String(128), nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.String(64), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("devices", sa.Integer(), nullable=False),
        sa.Column("traits", sa.JSON(), nullable=False),
        sa.Column("work", sa.JSON(), nullable=False),
        sa.Column("seen_at", SECONDS, nullable=False),
        sa.PrimaryKeyConstraint("group_name", "rank", name=op.f("pk_node")),
    )
    op.create_table(
        "run_prompt",
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("prompt", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "id", name=op.f("pk_run_prompt")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "saved_view",
        sa.Column("id", sa.String(26), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("view", sa.JSON(), nullable=False),
        sa.Column("changed_at", SECONDS, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_saved_view")),
        sa.UniqueConstraint("name", name=op.f("uq_saved_view_name")),
    )
    op.create_table(
        "singleton",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("until", SECONDS, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_singleton")),
    )
    op.create_table(
        "webhook",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("try_after", SECONDS, nullable=False),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.Column("delivered_at", SECONDS, nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_webhook")),
    )
    op.create_table(
        "worker",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("device", sa.String(64), nullable=False),
        sa.Column("device_name", sa.Text(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("run_id", sa.String(26), nullable=True),
        sa.Column("started_at", SECONDS, nullable=False),
        sa.Column("seen_at", SECONDS, nullable=False),
        sa.Column("stats", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_worker")),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.String(26), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("experiment_id", sa.String(26), nullable=True),
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("config_hash", sa.String(64), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("devices", sa.Integer(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("requested_action", sa.String(8), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.String(64), nullable=True),
        sa.Column("lease_until", SECONDS, nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("run_after", SECONDS, nullable=False),
        sa.Column("own_failures", sa.Integer(), nullable=False),
        sa.Column("last_step", sa.Integer(), nullable=False),
        sa.Column("progress_at", SECONDS, nullable=True),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("sort_reward", SECONDS, nullable=True),
        sa.Column("sort_accuracy", SECONDS, nullable=True),
        sa.Column("sort_eval_accuracy", SECONDS, nullable=True),
        sa.Column("sort_length", SECONDS, nullable=True),
        sa.Column("sort_lr", SECONDS, nullable=True),
        sa.Column("sort_group_size", SECONDS, nullable=True),
        sa.Column("sort_temperature", SECONDS, nullable=True),
        sa.Column("sort_preset", sa.Text(), nullable=True),
        sa.Column("sort_policy", sa.Text(), nullable=True),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("colour", sa.SmallInteger(), nullable=False),
        sa.Column("parent_run", sa.String(26), nullable=True),
        sa.Column("fork_step", sa.Integer(), nullable=True),
        sa.Column("origin", sa.String(32), nullable=False),
        sa.Column("origin_file", sa.Text(), nullable=False),
        sa.Column("writer", sa.String(64), nullable=True),
        sa.Column("writer_key", sa.String(128), nullable=True),
        sa.Column("verdict", sa.String(16), nullable=True),
        sa.Column("onset_healthy", sa.Integer(), nullable=True),
        sa.Column("onset_sick", sa.Integer(), nullable=True),
        sa.Column("cause", sa.String(32), nullable=False),
        sa.Column("judged_step", sa.Integer(), nullable=True),
        sa.Column("judged_by", sa.Integer(), nullable=False),
        sa.Column("check_hash", sa.String(64), nullable=True),
        sa.Column("check_report", sa.JSON(), nullable=True),
        sa.Column("idempotency_key", sa.String(200), nullable=True),
        sa.Column("request_hash", sa.String(64), nullable=True),
        sa.Column("archived_at", SECONDS, nullable=True),
        sa.Column("deleted_at", SECONDS, nullable=True),
        sa.Column("deleting_at", SECONDS, nullable=True),
        sa.Column("created_at", SECONDS, nullable=False),
        sa.Column("queued_at", SECONDS, nullable=False),
        sa.Column("started_at", SECONDS, nullable=True),
        sa.Column("finished_at", SECONDS, nullable=True),
        sa.Column("changed_at", SECONDS, nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiment.id"], name=op.f("fk_run_experiment_id_experiment")
        ),
        sa.ForeignKeyConstraint(["parent_run"], ["run.id"], name=op.f("fk_run_parent_run_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
    )
    op.create_index("ix_run_changed", "run", ["changed_at"], unique=False)
    op.create_index(op.f("ix_run_check_hash"), "run", ["check_hash"], unique=False)
    op.create_index("ix_run_claim", "run", ["status", "priority", "queued_at", "id"], unique=False)
    op.create_index("ix_run_created", "run", ["created_at", "id"], unique=False)
    op.create_index(
        "ix_run_deleting", "run", ["deleting_at"], unique=False, sqlite_where=DOOMED, postgresql_where=DOOMED
    )
    op.create_index("ix_run_experiment", "run", ["experiment_id"], unique=False)
    op.create_index(op.f("ix_run_idempotency_key"), "run", ["idempotency_key"], unique=True)
    op.create_index("ix_run_judged", "run", ["status", "judged_step", "last_step", "judged_by"], unique=False)
    op.create_index(
        "ix_run_listed",
        "run",
        ["created_at", "id"],
        unique=False,
        sqlite_where=LISTED,
        postgresql_where=LISTED,
    )
    op.create_index(
        "ix_run_sort_accuracy",
        "run",
        ["sort_accuracy", "id"],
        unique=False,
        sqlite_where=LISTED,
        postgresql_where=LISTED,
    )
    op.create_index(
        "ix_run_sort_eval_accuracy",
        "run",
        ["sort_eval_accuracy", "id"],
        unique=False,
        sqlite_where=LISTED,
        postgresql_where=LISTED,
    )
    op.create_index(
        "ix_run_sort_group_size",
        "run",
        ["sort_group_size", "id"],
        unique=False,
        sqlite_where=LISTED,
        postgresql_where=LISTED,
    )
    op.create_index(
        "ix_run_sort_length",
        "run",
        ["sort_length", "id"],
        unique=False,
        sqlite_where=LISTED,
        postgresql_where=LISTED,
    )
    op.create_index(
        "ix_run_sort_lr", "run", ["sort_lr", "id"], unique=False, sqlite_where=LISTED, postgresql_where=LISTED
    )
    op.create_index(
        "ix_run_sort_policy",
        "run",
        ["sort_policy", "id"],
        unique=False,
        sqlite_where=LISTED,
        postgresql_where=LISTED,
    )
    op.create_index(
        "ix_run_sort_preset",
        "run",
        ["sort_preset", "id"],
        unique=False,
        sqlite_where=LISTED,
        postgresql_where=LISTED,
    )
    op.create_index(
        "ix_run_sort_reward",
        "run",
        ["sort_reward", "id"],
        unique=False,
        sqlite_where=LISTED,
        postgresql_where=LISTED,
    )
    op.create_index(
        "ix_run_sort_temperature",
        "run",
        ["sort_temperature", "id"],
        unique=False,
        sqlite_where=LISTED,
        postgresql_where=LISTED,
    )
    op.create_index("ix_run_writer_key", "run", ["writer", "writer_key"], unique=True)
    op.create_table(
        "search",
        sa.Column("experiment_id", sa.String(26), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("ended_at", SECONDS, nullable=True),
        sa.Column("deleted_cost", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiment.id"], name=op.f("fk_search_experiment_id_experiment")
        ),
        sa.PrimaryKeyConstraint("experiment_id", name=op.f("pk_search")),
    )
    op.create_index(op.f("ix_search_status"), "search", ["status"], unique=False)
    op.create_table(
        "attempt",
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("from_step", sa.Integer(), nullable=False),
        sa.Column("packed_step", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.String(64), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("device", sa.String(64), nullable=False),
        sa.Column("devices", sa.Integer(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("slot_price", SECONDS, nullable=True),
        sa.Column("judge_cost", SECONDS, nullable=True),
        sa.Column("currency", sa.String(3), nullable=True),
        sa.Column("versions", sa.JSON(), nullable=False),
        sa.Column("started_at", SECONDS, nullable=False),
        sa.Column("ended_at", SECONDS, nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_attempt_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_attempt")),
    )
    op.create_index(op.f("ix_attempt_packed_step"), "attempt", ["packed_step"], unique=False)
    op.create_table(
        "checkpoint",
        sa.Column("id", sa.String(26), nullable=False),
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("bytes_total", sa.BigInteger(), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("kept_for", sa.String(8), nullable=True),
        sa.Column("onset", sa.Integer(), nullable=True),
        sa.Column("created_at", SECONDS, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_checkpoint_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoint")),
    )
    op.create_index("ix_checkpoint_run_step", "checkpoint", ["run_id", "step"], unique=False)
    op.create_table(
        "event",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("run_id", sa.String(26), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("at", SECONDS, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("level", sa.String(8), nullable=False),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_event_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_event_kind", "event", ["kind", "level"], unique=False)
    op.create_index("ix_event_run", "event", ["run_id", "id"], unique=False)
    op.create_table(
        "log_chunk",
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("at", SECONDS, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_log_chunk_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", "attempt", "number", name=op.f("pk_log_chunk")),
    )
    op.create_table(
        "metric_block",
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("key_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("last_step", sa.Integer(), nullable=False),
        sa.Column("points", sa.Integer(), nullable=False),
        sa.Column("outline", sa.LargeBinary(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["key_id"], ["metric_key.id"], name=op.f("fk_metric_block_key_id_metric_key")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_metric_block_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", "key_id", "attempt", "number", name=op.f("pk_metric_block")),
    )
    op.create_table(
        "push_session",
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("stored", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("heard_at", SECONDS, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_push_session_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", "id", name=op.f("pk_push_session")),
    )
    op.create_table(
        "rollout_group",
        sa.Column("id", sa.String(26), nullable=False),
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("prompt_index", sa.Integer(), nullable=False),
        sa.Column("prompt_id", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("prompt", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("reward_mean", SECONDS, nullable=True),
        sa.Column("reward_std", SECONDS, nullable=True),
        sa.Column("left_out", sa.String(16), nullable=False),
        sa.Column("search_number", sa.BigInteger(), nullable=True),
        sa.Column("completions", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_rollout_group_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollout_group")),
    )
    op.create_index(
        "ix_rollout_group_run_step", "rollout_group", ["run_id", "step", "kind", "prompt_index"], unique=False
    )
    op.create_index("ix_rollout_group_search_number", "rollout_group", ["search_number"], unique=True)
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
            ["experiment_id"], ["search.experiment_id"], name=op.f("fk_search_trial_experiment_id_search")
        ),
        sa.PrimaryKeyConstraint("experiment_id", "number", name=op.f("pk_search_trial")),
    )
    op.create_table(
        "trial",
        sa.Column("id", sa.String(26), nullable=False),
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("experiment_id", sa.String(26), nullable=True),
        sa.Column("initial_verdict", sa.String(16), nullable=False),
        sa.Column("cause", sa.String(32), nullable=False),
        sa.Column("onset_healthy", sa.Integer(), nullable=True),
        sa.Column("onset_sick", sa.Integer(), nullable=True),
        sa.Column("fork_run", sa.String(26), nullable=True),
        sa.Column("fork_step", sa.Integer(), nullable=False),
        sa.Column("due_step", sa.Integer(), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("seeds", sa.JSON(), nullable=False),
        sa.Column("arms", sa.JSON(), nullable=False),
        sa.Column("verdict", sa.JSON(), nullable=False),
        sa.Column("judged_at", SECONDS, nullable=True),
        sa.Column("created_at", SECONDS, nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiment.id"], name=op.f("fk_trial_experiment_id_experiment")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_trial_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trial")),
    )
    op.create_index("ix_trial_experiment", "trial", ["experiment_id"], unique=False)
    op.create_index("ix_trial_run", "trial", ["run_id"], unique=False)
    op.create_table(
        "rollout_label",
        sa.Column("rollout_id", sa.String(26), nullable=False),
        sa.Column("label", sa.String(40), nullable=False),
        sa.Column("group_id", sa.String(26), nullable=False),
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("changed_at", SECONDS, nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["rollout_group.id"],
            name=op.f("fk_rollout_label_group_id_rollout_group"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("rollout_id", "label", name=op.f("pk_rollout_label")),
    )
    op.create_index("ix_rollout_label_group", "rollout_label", ["group_id"], unique=False)
    op.create_index("ix_rollout_label_run", "rollout_label", ["run_id", "label"], unique=False)
    op.create_table(
        "rollout_tokens",
        sa.Column("group_id", sa.String(26), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["rollout_group.id"],
            name=op.f("fk_rollout_tokens_group_id_rollout_group"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("group_id", name=op.f("pk_rollout_tokens")),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE TABLE rollout_words (number bigint NOT NULL REFERENCES rollout_group (search_number) "
            "ON DELETE CASCADE, position smallint NOT NULL, words tsvector NOT NULL, "
            "is_long boolean NOT NULL, PRIMARY KEY (number, position))"
        )
        op.execute("CREATE INDEX ix_rollout_words_words ON rollout_words USING gin (words)")
    else:
        op.execute(
            "CREATE VIRTUAL TABLE rollout_words USING fts5"
            "(words, content='', tokenize='unicode61 remove_diacritics 0')"
        )
