"""Runs have a colour; lists of runs are saved as views; counting the listed runs reads an index alone."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

SECONDS = sa.Float(53)
COLOURS = 10
LISTED = sa.text("archived_at IS NULL AND deleted_at IS NULL AND deleting_at IS NULL")

DOOMED = sa.text("deleting_at IS NOT NULL")


def upgrade() -> None:
    op.add_column("run", sa.Column("colour", sa.SmallInteger(), server_default="0", nullable=False))
    _give_colours()
    op.create_index(
        "ix_run_listed", "run", ["created_at", "id"], sqlite_where=LISTED, postgresql_where=LISTED
    )
    op.drop_index("ix_run_deleting", "run")
    op.create_index("ix_run_deleting", "run", ["deleting_at"], sqlite_where=DOOMED, postgresql_where=DOOMED)
    op.create_table(
        "saved_view",
        sa.Column("id", sa.String(26), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("view", sa.JSON(), nullable=False),
        sa.Column("changed_at", SECONDS, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_saved_view")),
        sa.UniqueConstraint("name", name=op.f("uq_saved_view_name")),
    )


def _give_colours() -> None:
    """One colour after the other in the order of creation: an experiment's runs differ."""
    run = sa.table("run", sa.column("id"), sa.column("colour"))
    connection = op.get_bind()
    ids = connection.scalars(sa.select(run.c.id).order_by(run.c.id)).all()
    for colour in range(1, COLOURS):
        rows = [{"of": run_id} for run_id in ids[colour::COLOURS]]
        if rows:
            connection.execute(
                sa.update(run).where(run.c.id == sa.bindparam("of")).values(colour=colour), rows
            )


def downgrade() -> None:
    op.drop_table("saved_view")
    op.drop_index("ix_run_deleting", "run")
    op.create_index("ix_run_deleting", "run", ["deleting_at"])
    op.drop_index("ix_run_listed", "run")
    op.drop_column("run", "colour")
