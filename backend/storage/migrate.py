"""Migrate the database to the newest schema.

The upgrade is a single transaction, so the database stays unchanged if the process is killed. If two
processes start together, one upgrades while the other waits for SQLite's write lock or Postgres's advisory
lock.
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

MAX_MIGRATION_SECONDS = 3600.0
"""Time limit of a migration statement, in seconds, which may rewrite a table or wait for another process."""

ADVISORY_LOCK_NUMBER = 0x67_72_70_6F
"""Number of the Postgres advisory lock, the ASCII codes of "grpo"."""


class UnknownSchema(Conflict):
    """The schema of the database is newer than this version, or older than the first release."""

    def __init__(self, revision: str) -> None:
        super().__init__(
            f"the database has schema {revision}, {unknown_schema_reason(revision)}, "
            "or use another STATE_DIR or DATABASE_URL; nothing was changed"
        )


def migrate(settings: Settings) -> str:
    """Upgrade the database of this installation, and return a message with the old and new schema."""
    old_schema, new_schema = upgrade(settings.effective_database_url)
    if old_schema == new_schema:
        return f"schema {new_schema}"
    return (
        f"upgraded from schema {old_schema} to {new_schema}"
        if old_schema
        else f"created, schema {new_schema}"
    )


def upgrade(url: str) -> tuple[str, str]:
    """Upgrade to the newest schema, and return the old schema ("" if there was none) and the new one."""
    engine = open_engine(url, pool_size=1, answer_seconds=MAX_MIGRATION_SECONDS)
    try:
        with schema_lock(engine) as connection:
            old_schema = _check_known(connection)
            _keep_copy(engine, old_schema, target=newest_schema())
            if old_schema != newest_schema():
                upgrade_within(connection, newest_schema())
            new_schema = read_schema(connection)
        if not old_schema and engine.dialect.name == "sqlite" and engine.url.database:
            sync(Path(engine.url.database).parent)  # SQLite flushes the directory only for its log
        return old_schema, new_schema
    finally:
        engine.dispose()


def upgrade_within(connection: Connection, revision: str) -> None:
    """Upgrade to `revision` as part of a transaction."""
    from alembic import command  # slow to import, and most starts need no migration
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def _check_known(connection: Connection) -> str:
    current_schema = read_schema(connection)
    if current_schema and current_schema not in known_schemas():
        raise UnknownSchema(current_schema)
    return current_schema


@contextmanager
def schema_lock(engine: Engine) -> Iterator[Connection]:
    """Open a transaction in which no other process can change the schema."""
    # On SQLite the transaction begins with a write lock, so a second process waits here for the first.
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            connection.execute(text("SET LOCAL lock_timeout = '300s'"))
            connection.execute(text(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK_NUMBER})"))
            connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        yield connection


def _keep_copy(engine: Engine, current_schema: str, *, target: str) -> None:
    """Save a backup of a SQLite database next to it before an upgrade. The caller holds the write lock."""
    if engine.dialect.name != "sqlite" or not engine.url.database or current_schema in ("", target):
        return
    backup = Path(f"{engine.url.database}.{current_schema}.backup")
    if backup.exists():
        return
    draft = backup.with_suffix(".draft")
    draft.unlink(missing_ok=True)  # left by a process that was killed
    copy_sqlite(engine, draft)
    publish(draft, backup)
