"""Migration of the database to the schema of this code.

The whole upgrade is one transaction, so a process that is killed in the middle leaves the database unchanged.
If two processes start together, one upgrades while the other waits for SQLite's write lock or Postgres's
advisory lock.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, text

from backend.base.durable_files import publish, sync
from backend.base.errors import Conflict
from backend.base.settings import Settings
from backend.storage.engine import copy_sqlite, open_engine
from backend.storage.schema import (
    MIGRATIONS,
    known_schemas,
    newest_schema,
    read_schema,
    unknown_schema_reason,
)

PATIENCE_SECONDS = 3600.0
"""Time limit of a migration, in seconds; it may rewrite a large table or wait for another process."""

LOCK = 0x67_72_70_6F
"""Number of the Postgres advisory lock: "grpo"."""


class UnknownSchema(Conflict):
    """The database has a schema that this version cannot read: newer, or from before the release."""

    def __init__(self, revision: str) -> None:
        super().__init__(
            f"the database has schema {revision}, {unknown_schema_reason(revision)}, "
            "or use another STATE_DIR or DATABASE_URL; nothing was changed"
        )


def migrate(settings: Settings) -> str:
    """Upgrade this installation's database; return a sentence about what was done."""
    before, after = upgrade(settings.effective_database_url)
    if before == after:
        return f"schema {after}"
    return f"upgraded from schema {before} to {after}" if before else f"created, schema {after}"


def upgrade(url: str) -> tuple[str, str]:
    """Upgrade to the newest schema; return the old schema (empty if there was none) and the new one."""
    engine = open_engine(url, pool_size=1, answer_seconds=PATIENCE_SECONDS)
    try:
        with schema_lock(engine) as connection:
            before = _check_known(connection)
            _keep_copy(engine, before, target=newest_schema())
            if before != newest_schema():
                upgrade_within(connection, newest_schema())
            after = read_schema(connection)
        if not before and engine.dialect.name == "sqlite" and engine.url.database:
            sync(Path(engine.url.database).parent)  # SQLite does this for its log, not for the database
        return before, after
    finally:
        engine.dispose()


def upgrade_within(connection: Connection, revision: str) -> None:
    """Upgrade to `revision` as part of a transaction."""
    from alembic import command  # most starts have nothing to migrate
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def _check_known(connection: Connection) -> str:
    current = read_schema(connection)
    if current and current not in known_schemas():
        raise UnknownSchema(current)
    return current


@contextmanager
def schema_lock(engine: Engine) -> Iterator[Connection]:
    """Open a transaction in which no other process can change the schema."""
    # SQLite: our transactions begin as writers, so a second process waits here for the first.
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            connection.execute(text("SET LOCAL lock_timeout = '300s'"))
            connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK})"))
            connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        yield connection


def _keep_copy(engine: Engine, current: str, *, target: str) -> None:
    """Save a copy of a SQLite database next to it before an upgrade; nobody else writes meanwhile."""
    if engine.dialect.name != "sqlite" or not engine.url.database or current in ("", target):
        return
    copy = Path(f"{engine.url.database}.{current}.backup")
    if copy.exists():
        return
    draft = copy.with_suffix(".draft")
    draft.unlink(missing_ok=True)  # of a process that was killed
    copy_sqlite(engine, draft)
    publish(draft, copy)
