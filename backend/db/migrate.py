"""Migration of the database to the schema of this code.

One transaction holds the whole upgrade: a process that is killed in the middle leaves the database as it
was, and of two that start together one upgrades while the other waits (SQLite's write lock, Postgres's
advisory lock).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Literal

from sqlalchemy import URL, Connection, Engine, inspect, text

from backend.db.engine import copy_sqlite, open_engine
from backend.db.schema import MIGRATIONS, known_schemas, newest_schema, schema_of
from backend.durable_files import publish, sync
from backend.errors import Conflict
from backend.settings import Settings

PATIENCE_SECONDS = 3600.0
"""A migration may rewrite a large table, or wait for another process that does."""

LOCK = 0x67_72_70_6F
"""Number of the Postgres advisory lock: "grpo"."""


class NewerDatabase(Conflict):
    """The database was written by a newer version of this program."""

    def __init__(self, revision: str, head: str) -> None:
        super().__init__(
            f"the database has schema {revision}, which is newer than this version knows ({head}): "
            f"start the newer version again, run its `python -m backend.cli downgrade {head}`, or use "
            "another STATE_DIR or DATABASE_URL"
        )


def migrate(settings: Settings) -> str:
    """Upgrade this installation's database; says in words what was done."""
    before, after = upgrade(settings.effective_database_url)
    if before == after:
        return f"schema {after}"
    return f"upgraded from schema {before} to {after}" if before else f"created, schema {after}"


def upgrade(url: str, *, revision: str = "head") -> tuple[str, str]:
    """Upgrade to `revision`; the schema before (empty: there was none) and after."""
    engine = open_engine(url, pool_size=1, answer_seconds=PATIENCE_SECONDS)
    try:
        with locked(engine) as connection:
            before = _check_known(connection)
            _keep_copy(engine, before, target=newest_schema())
            if before != newest_schema() or revision != "head":
                upgrade_within(connection, revision)
            after = schema_of(connection)
        if not before and engine.dialect.name == "sqlite" and engine.url.database:
            sync(Path(engine.url.database).parent)  # SQLite does this for its log, not for the database
        return before, after
    finally:
        engine.dispose()


def downgrade(url: str, revision: str) -> None:
    """Go back to an older schema; a copy of a SQLite database stays beside it."""
    engine = open_engine(url, pool_size=1, answer_seconds=PATIENCE_SECONDS)
    try:
        with locked(engine) as connection:
            if engine.dialect.name == "postgresql":
                # SQLite has one writer; here a service that was overlooked could write what is about to go.
                names = ", ".join(f'"{table}"' for table in inspect(connection).get_table_names())
                connection.execute(text(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE"))
            _keep_copy(engine, schema_of(connection), target=revision)
            if (stale := copy_beside(engine.url, revision)) is not None and stale.exists():
                _rename_aside(stale)  # the next upgrade makes a copy of its own
            _run("downgrade", connection, revision)
    finally:
        engine.dispose()


def upgrade_within(connection: Connection, revision: str) -> None:
    """Upgrade to `revision` as part of a transaction."""
    _run("upgrade", connection, revision)


def _check_known(connection: Connection) -> str:
    current = schema_of(connection)
    if current and current not in known_schemas():
        raise NewerDatabase(current, newest_schema())
    return current


@contextmanager
def locked(engine: Engine) -> Iterator[Connection]:
    """A transaction in which nobody else changes the schema."""
    # SQLite: our transactions begin as writers, so a second process waits here for the first.
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            connection.execute(text("SET LOCAL lock_timeout = '300s'"))
            connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK})"))
            connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        yield connection


def copy_beside(url: URL, schema: str) -> Path | None:
    """The copy of a database as it was before it left a schema; None where none is made (Postgres)."""
    if url.get_backend_name() != "sqlite" or not url.database:
        return None
    return Path(f"{url.database}.{schema}.backup")


def _keep_copy(engine: Engine, current: str, *, target: str) -> None:
    """A copy of a SQLite database that is about to change, beside it; nobody writes meanwhile."""
    copy = copy_beside(engine.url, current)
    if copy is None or current in ("", target) or copy.exists():
        return
    draft = copy.with_suffix(".draft")
    draft.unlink(missing_ok=True)  # of a process that was killed
    copy_sqlite(engine, draft)
    publish(draft, copy)


def _rename_aside(file: Path) -> None:
    """Give a file the first name of the kind `file.1` that is free."""
    names = (file.with_name(f"{file.name}.{number}") for number in count(1))
    file.rename(next(name for name in names if not name.exists()))
    sync(file.parent)


def _run(name: Literal["upgrade", "downgrade"], connection: Connection, revision: str) -> None:
    from alembic import command  # most starts have nothing to migrate
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    getattr(command, name)(config, revision)
