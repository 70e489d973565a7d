"""Check the database: rows without an owner, a schema that differs, and damaged pages."""

from collections.abc import Iterator

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from backend.storage.engine import Sessions, is_postgres
from backend.storage.models import Base, Metric, MetricKey, Run
from backend.storage.rollout_words import is_index

Owner = tuple[str, str]
"""A table and a column."""

INDEX_CHECK = text("""
    SELECT c.oid::regclass::text AS name, bt_index_check(c.oid, true)
    FROM pg_class c JOIN pg_am a ON a.oid = c.relam JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE a.amname = 'btree' AND c.relkind = 'i' AND n.nspname = 'public'""")
HEAP_CHECK = text("""
    SELECT c.oid::regclass::text AS name, h.msg
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, verify_heapam(c.oid) h
    WHERE c.relkind = 'r' AND n.nspname = 'public'""")


def ownerless_rows(session: Session) -> Iterator[str]:
    """Check invariant I5 for rows: every reference to a run, a group or a metric must exist."""
    for (table, column), (owner, key) in _owners():
        child, parent = Base.metadata.tables[table], Base.metadata.tables[owner]
        name = child.c[column]
        missing_owners = (
            select(name).where(name.is_not(None), name.not_in(select(parent.c[key]))).distinct().limit(5)
        )
        for owner_id in session.scalars(missing_owners):
            yield f"I5: rows of {table} name {column} {owner_id!r}, which {owner} does not have"


def _owners() -> Iterator[tuple[Owner, Owner]]:
    """Return (child, parent) pairs of all foreign keys, and of two references of `metric` without one."""
    for table in Base.metadata.sorted_tables:
        for key in table.foreign_keys:
            yield (table.name, key.parent.name), (key.column.table.name, key.column.name)
    yield (Metric.__tablename__, "run_id"), (Run.__tablename__, "id")
    yield (Metric.__tablename__, "key_id"), (MetricKey.__tablename__, "id")


def _is_mapped(name: str | None, kind: str, _parents: object) -> bool:
    return kind != "table" or not is_index(name or "")


def schema_damage(sessions: Sessions) -> list[str]:
    """Check invariant I6."""
    with sessions() as session:
        connection = session.connection()
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "include_name": _is_mapped}
        )
        drift = [
            f"I6: the schema differs from the models: {diff}"
            for diff in compare_metadata(context, Base.metadata)
        ]
        check = _postgres_damage if is_postgres(session) else _sqlite_damage
        findings = drift + list(check(connection))
        session.rollback()
    return findings


def _sqlite_damage(connection: Connection) -> Iterator[str]:
    for (reply,) in connection.exec_driver_sql("PRAGMA integrity_check"):
        if reply != "ok":
            yield f"I6: SQLite finds damage: {reply}"
    for row in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield f"I6: SQLite finds a broken foreign key: {tuple(row)}"


def _postgres_damage(connection: Connection) -> Iterator[str]:
    """Yield the findings of pg_amcheck if the server has its extension, and roll the transaction back."""
    extension = connection.execute(
        text("SELECT 1 FROM pg_available_extensions WHERE name = 'amcheck'")
    ).scalar()
    if extension is None:
        return
    connection.execute(text("CREATE EXTENSION IF NOT EXISTS amcheck"))
    try:
        connection.execute(INDEX_CHECK).all()
    except DBAPIError as error:  # the check reports damage by raising
        yield f"I6: Postgres finds damage: {error.orig}"
        return
    for name, problem in connection.execute(HEAP_CHECK):
        yield f"I6: Postgres finds damage in {name}: {problem}"
