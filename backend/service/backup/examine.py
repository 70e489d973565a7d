"""Examine a database from an untrusted source before any of its contents is used."""

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from sqlalchemy import JSON, Boolean, Connection, Float, Integer, LargeBinary, Table, select, text

from backend.base.text import is_too_deep
from backend.service.backup.contents import SavedTable
from backend.service.backup.files import BadBackup, is_canonical
from backend.service.backup.tables import ordered_tables
from backend.storage.engine import open_engine
from backend.storage.migrate import schema_lock, upgrade_within
from backend.storage.models import Checkpoint, Run
from backend.storage.schema import read_schema

MAX_DEPTH = 200
"""Maximum nesting of a document; documents from outside may have at most a quarter of it."""

BATCH_DOCUMENTS = 500
"""Number of documents that are in memory at a time."""

MAX_GENERATIONS = 1_000
"""Maximum number of ancestors of a run."""

_ID = re.compile(r"[0-9A-Za-z_-]{1,26}")

INTERNAL_TABLES = ("sqlite_sequence", "sqlite_stat1", "sqlite_stat4")
"""Tables that SQLite creates itself."""

STORAGE_CLASSES = ((Boolean, "integer"), (Integer, "integer"), (LargeBinary, "blob"), (JSON, "text"))
"""SQLite storage class by column type; other columns, except floating-point numbers, are text."""


def check_sqlite(file: Path, revision: str) -> None:
    """Raise BadBackup unless the file has exactly this schema, without triggers or views that could run code.

    The file is opened read-only, and no function in its schema is called.
    """
    try:
        with closing(
            sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        ) as database:
            for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0"):
                database.execute(f"PRAGMA {pragma}")
            schema = _read_schema(database)
            if bad_objects := sorted(
                schema.keys() ^ (expected_schema := _expected_schema(file, revision)).keys()
            ):
                raise BadBackup(
                    f"its database has a different schema than {revision}: {' '.join(bad_objects[0])!r:.200}"
                )
            if changed_objects := sorted(key for key, sql in schema.items() if sql != expected_schema[key]):
                raise BadBackup(
                    f"its database has a different schema than {revision}: "
                    f"{' '.join(changed_objects[0])!r:.200}"
                )
            if (result := database.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
                raise BadBackup(f"its database is damaged: {result!r:.200}")
            if violation := database.execute("PRAGMA foreign_key_check").fetchone():
                raise BadBackup(f"its database is damaged: a row of {violation[0]} refers to a missing row")
    except sqlite3.Error as error:
        raise BadBackup(f"its database cannot be read: {error}") from None


def _read_schema(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Return the SQL statements that created all schema objects, by kind and name."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    return {
        (str(kind), str(name)): " ".join(str(sql).split())
        for kind, name, sql in rows
        if not (kind == "index" and sql is None) and not (kind == "table" and name in INTERNAL_TABLES)
    }


def _expected_schema(database_file: Path, revision: str) -> dict[tuple[str, str], str]:
    """Return the schema objects of an empty database with this schema."""
    empty_file = database_file.with_name(f"{database_file.name}.empty")
    engine = open_engine(f"sqlite:///{empty_file}", pool_size=1)
    try:
        with schema_lock(engine) as connection:
            upgrade_within(connection, revision)
        engine.dispose()
        with closing(sqlite3.connect(empty_file)) as database:
            return _read_schema(database)
    finally:
        engine.dispose()
        for temporary_file in empty_file.parent.glob(f"{empty_file.name}*"):
            temporary_file.unlink()


def check_counts(connection: Connection, revision: str, saved_tables: Mapping[str, SavedTable]) -> None:
    """Raise BadBackup unless schema and row counts match the manifest; must be called before an upgrade."""
    if (schema := read_schema(connection)) != revision:
        raise BadBackup(f"its database has schema {schema!r:.40}, its manifest says {revision}")
    for name, table in saved_tables.items():
        count = connection.scalar(text(f'SELECT count(*) FROM "{name}"'))  # noqa: S608 - names that we know
        if count != table.rows:
            raise BadBackup(f"{name} has {count} rows, {table.rows} were saved")


def check_rows(connection: Connection) -> None:
    """Raise BadBackup for values that no version of this program writes; requires the newest schema."""
    for run_id in connection.scalars(select(Run.id)):
        if not _ID.fullmatch(run_id):
            raise BadBackup(f"it has a run with an invalid id: {run_id!r:.60}")
    _check_origins(connection)
    for path in connection.scalars(select(Checkpoint.path)):
        # Directories with these names are read and removed.
        if not is_canonical(path) or "/" in path or path.startswith("."):
            raise BadBackup(f"it has a checkpoint outside of its run's directory: {path!r:.60}")
    if connection.dialect.name == "sqlite":
        for table in ordered_tables():
            _check_types(connection, table)
    for table in ordered_tables():
        _check_documents(connection, table)


def _check_origins(connection: Connection) -> None:
    rows = connection.execute(select(Run.id, Run.parent_run).where(Run.parent_run.is_not(None)))
    check_lines({row.id: row.parent_run for row in rows}, MAX_GENERATIONS)


def check_lines(parents: Mapping[str, str], limit: int) -> None:
    """Raise BadBackup for a run that is its own ancestor or has more than `limit` ancestors.

    Other code follows a run to its first ancestor.
    """
    ancestors: dict[str, int] = {}
    for start in parents:
        lineage: dict[str, None] = {}
        run = start
        while run in parents and run not in ancestors:
            if run in lineage:
                raise BadBackup(f"it has a run that comes from itself: {run!r:.60}")
            lineage[run] = None
            run = parents[run]
        for number, ancestor in enumerate(reversed(lineage), ancestors.get(run, 0) + 1):
            if number > limit:
                raise BadBackup(f"it has a run with more than {limit:,} ancestors: {ancestor!r:.60}")
            ancestors[ancestor] = number


def _check_types(connection: Connection, table: Table) -> None:
    """Raise BadBackup if a value has the wrong type, which SQLite allows."""
    conditions = " AND ".join(_type_conditions(table))
    query = f'SELECT 1 FROM "{table.name}" WHERE NOT ({conditions}) LIMIT 1'  # noqa: S608 - our own names
    if connection.scalar(text(query)):
        raise BadBackup(f"a row of {table.name} in its database holds a value of another type")


def _check_documents(connection: Connection, table: Table) -> None:
    """Parse every JSON document, because databases accept some documents that Python rejects."""
    for column in (column for column in table.columns if isinstance(column.type, JSON)):
        name, row_name = f'"{column.name}"', f"a row of {table.name} in its database"
        query = f'SELECT CAST({name} AS TEXT) FROM "{table.name}" WHERE {name} IS NOT NULL'  # noqa: S608 - our own names
        for document in connection.scalars(text(query), execution_options={"yield_per": BATCH_DOCUMENTS}):
            try:
                is_deep = is_too_deep(json.loads(document), MAX_DEPTH)
            except (ValueError, RecursionError):
                reason = f"has a {column.name} that is not JSON"
                raise BadBackup(f"{row_name} {reason}: {document!r:.60}") from None
            if is_deep:
                reason = f"has a {column.name} that is nested deeper than {MAX_DEPTH} levels"
                raise BadBackup(f"{row_name} {reason}: {document!r:.60}")


def _type_conditions(table: Table) -> Iterator[str]:
    for column in table.columns:
        name = f'"{column.name}"'
        if isinstance(column.type, Float):
            yield f"typeof({name}) IN ('real', 'integer', 'null')"
            continue
        kind = next(
            (kind for column_type, kind in STORAGE_CLASSES if isinstance(column.type, column_type)), "text"
        )
        yield f"typeof({name}) IN ('{kind}', 'null')"
