"""Runs from before k3_limit was a field keep the limit that they had: 10 nats, where new runs have none."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

LIMIT = 10.0
ROWS = 500

RUN = sa.table(
    "run", sa.column("id", sa.String), sa.column("config", sa.JSON), sa.column("config_hash", sa.String)
)

Fields = dict[str, Any]


def upgrade() -> None:
    _each_kl(lambda kl: {"k3_limit": LIMIT} | kl)


def downgrade() -> None:
    _each_kl(lambda kl: {name: value for name, value in kl.items() if name != "k3_limit"})


def _each_kl(changed: Callable[[Fields], Fields]) -> None:
    """Change the KL of every stored config that has one, a batch of rows at a time."""
    connection, last = op.get_bind(), ""
    while rows := connection.execute(
        sa.select(RUN.c.id, RUN.c.config).where(RUN.c.id > last).order_by(RUN.c.id).limit(ROWS)
    ).all():
        last = rows[-1].id
        changes = [_row(run_id, config, changed) for run_id, config in rows if _has_kl(config)]
        if changes:
            statement = sa.update(RUN).where(RUN.c.id == sa.bindparam("of_run"))
            connection.execute(
                statement.values(config=sa.bindparam("new_config"), config_hash=sa.bindparam("new_hash")),
                changes,
            )


def _has_kl(config: Fields) -> bool:
    return config.get("objective", {}).get("kl", {}).get("type", "none") != "none"


def _row(run_id: str, config: Fields, changed: Callable[[Fields], Fields]) -> Fields:
    objective = config["objective"]
    new = config | {"objective": objective | {"kl": changed(objective["kl"])}}
    content = json.dumps({name: value for name, value in new.items() if name != "seed"}, sort_keys=True)
    return {"of_run": run_id, "new_config": new, "new_hash": hashlib.sha256(content.encode()).hexdigest()}
