"""Lists of runs are sorted by the metrics and config fields that people sort by through an index of each."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

LISTED = sa.text("archived_at IS NULL AND deleted_at IS NULL AND deleting_at IS NULL")

NUMBERS = {
    "sort_reward": ("summary", "last", "reward/mean"),
    "sort_accuracy": ("summary", "last", "reward/accuracy"),
    "sort_eval_accuracy": ("summary", "last", "eval/accuracy"),
    "sort_length": ("summary", "last", "length/mean"),
    "sort_lr": ("config", "optimizer", "lr"),
    "sort_group_size": ("config", "sampling", "group_size"),
    "sort_temperature": ("config", "sampling", "temperature"),
}
WORDS = {"sort_preset": ("config", "preset"), "sort_policy": ("config", "policy", "name")}


def upgrade() -> None:
    spell = _sqlite if op.get_bind().dialect.name == "sqlite" else _postgres
    types = {column: sa.Float(53) for column in NUMBERS} | {column: sa.Text() for column in WORDS}
    for column, kind in types.items():
        op.add_column("run", sa.Column(column, kind))
    pairs = [(name, spell(*path, number=True)) for name, path in NUMBERS.items()]
    pairs += [(name, spell(*path, number=False)) for name, path in WORDS.items()]
    assigned = ", ".join(f"{name} = {value}" for name, value in pairs)
    op.get_bind().exec_driver_sql(f"UPDATE run SET {assigned}")  # noqa: S608 - constants of this file
    for column in types:
        op.create_index(
            f"ix_run_{column}", "run", [column, "id"], sqlite_where=LISTED, postgresql_where=LISTED
        )


def _sqlite(column: str, *keys: str, number: bool) -> str:
    path = "'$" + "".join(f'."{key}"' for key in keys) + "'"
    kinds = "IN ('integer', 'real')" if number else "= 'text'"
    return f"CASE WHEN json_type({column}, {path}) {kinds} THEN json_extract({column}, {path}) END"


def _postgres(column: str, *keys: str, number: bool) -> str:
    path = "'{" + ",".join(f'"{key}"' for key in keys) + "}'"
    kind, cast = ("number", "::float8") if number else ("string", "")
    return f"CASE WHEN json_typeof({column} #> {path}) = '{kind}' THEN ({column} #>> {path}){cast} END"


def downgrade() -> None:
    for column in (*NUMBERS, *WORDS):
        op.drop_index(f"ix_run_{column}", "run")
        op.drop_column("run", column)
