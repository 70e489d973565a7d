"""Completions go into a block of their group; labels belong to the group.

The rows stay until the reconciler has packed them, group by group. The downgrade writes every completion
back as a row.
"""

import sqlalchemy as sa
import zstandard
from alembic import op

from backend.db.completion_codec import decode

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

GROUPS = sa.table("rollout_group", sa.column("id"), sa.column("completions", sa.LargeBinary()))
NAMES = ("id", "group_id", "position", "clean_text", "reward", "advantage", "tokens", "finish_reason")
JSON_NAMES = ("rewards", "flags", "turns", "non_finite")
ROLLOUTS = sa.table(
    "rollout",
    sa.column("text", sa.LargeBinary()),
    sa.column("correct", sa.Boolean()),
    *map(sa.column, NAMES),
    *(sa.column(name, sa.JSON()) for name in JSON_NAMES),
)
GROUPS_AT_ONCE = 200
KEPT = "rollout_id, label, run_id, note, role, version, changed_at"


def upgrade() -> None:
    op.add_column("rollout_group", sa.Column("completions", sa.LargeBinary(), nullable=True))
    op.create_table(
        "rollout_alias",
        sa.Column("id", sa.String(26), nullable=False),
        sa.Column("group_id", sa.String(26), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["rollout_group.id"],
            name=op.f("fk_rollout_alias_group_id_rollout_group"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollout_alias")),
    )
    op.create_index("ix_rollout_alias_group", "rollout_alias", ["group_id"])
    _make_labels(
        sa.Column("group_id", sa.String(26), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"],
            ["rollout_group.id"],
            name=op.f("fk_rollout_label_group_id_rollout_group"),
            ondelete="CASCADE",
        ),
        copy=f"INSERT INTO rollout_label (group_id, {KEPT}) SELECT r.group_id, {KEPT} "  # noqa: S608
        "FROM rollout_label_before JOIN rollout r ON r.id = rollout_id",
    )
    op.create_index("ix_rollout_label_group", "rollout_label", ["group_id"])


def _make_labels(*columns: sa.Column[str] | sa.ForeignKeyConstraint, copy: str) -> None:
    """Make the table of labels again, with other columns and keys, from its rows."""
    op.drop_index("ix_rollout_label_run", "rollout_label")
    op.rename_table("rollout_label", "rollout_label_before")
    if op.get_bind().dialect.name == "postgresql":  # the names of keys are those of indexes there
        op.execute("ALTER TABLE rollout_label_before DROP CONSTRAINT pk_rollout_label")
    op.create_table(
        "rollout_label",
        sa.Column("rollout_id", sa.String(26), nullable=False),
        sa.Column("label", sa.String(40), nullable=False),
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("changed_at", sa.Float(53), nullable=False),
        *columns,
        sa.PrimaryKeyConstraint("rollout_id", "label", name=op.f("pk_rollout_label")),
    )
    op.execute(copy)
    op.drop_table("rollout_label_before")
    op.create_index("ix_rollout_label_run", "rollout_label", ["run_id", "label"])


def downgrade() -> None:
    """Leave nothing out: a block that is damaged stops it."""
    _unpack()
    op.drop_index("ix_rollout_label_group", "rollout_label")
    _make_labels(
        sa.ForeignKeyConstraint(
            ["rollout_id"],
            ["rollout.id"],
            name=op.f("fk_rollout_label_rollout_id_rollout"),
            ondelete="CASCADE",
        ),
        copy=f"INSERT INTO rollout_label ({KEPT}) SELECT {KEPT} FROM rollout_label_before",  # noqa: S608
    )
    op.drop_table("rollout_alias")
    op.drop_column("rollout_group", "completions")


def _unpack() -> None:
    connection, compressor, last = op.get_bind(), zstandard.ZstdCompressor(), ""
    query = sa.select(GROUPS).where(GROUPS.c.completions.is_not(None)).order_by(GROUPS.c.id)
    while groups := connection.execute(query.where(GROUPS.c.id > last).limit(GROUPS_AT_ONCE)).all():
        rows = [
            {name: getattr(one, name) for name in (*NAMES, "correct")}
            | {"text": compressor.compress(one.text.encode("utf-8", "surrogatepass"))}
            | {name: getattr(one, name) for name in JSON_NAMES}
            for group in groups
            for one in decode(group.id, group.completions)
        ]
        if rows:
            connection.execute(sa.insert(ROLLOUTS), rows)
        last = groups[-1].id
