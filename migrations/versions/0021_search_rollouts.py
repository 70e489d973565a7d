"""A full-text index over completions, filled in the background; labels of completions."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

SECONDS = sa.Float(53)


def upgrade() -> None:
    op.add_column("rollout_group", sa.Column("search_number", sa.BigInteger(), nullable=True))
    op.create_index("ix_rollout_group_search_number", "rollout_group", ["search_number"], unique=True)
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
    op.create_table(
        "rollout_label",
        sa.Column("rollout_id", sa.String(26), nullable=False),
        sa.Column("label", sa.String(40), nullable=False),
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("changed_at", SECONDS, nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout_id"],
            ["rollout.id"],
            name=op.f("fk_rollout_label_rollout_id_rollout"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("rollout_id", "label", name=op.f("pk_rollout_label")),
    )
    op.create_index("ix_rollout_label_run", "rollout_label", ["run_id", "label"])


def downgrade() -> None:
    op.drop_index("ix_rollout_label_run", "rollout_label")
    op.drop_table("rollout_label")
    op.execute("DROP TABLE rollout_words")
    op.drop_index("ix_rollout_group_search_number", "rollout_group")
    op.drop_column("rollout_group", "search_number")
