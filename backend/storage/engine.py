"""Database engines, sessions, clock and ids, for both SQLite and Postgres."""

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import URL, Connection, Engine, Float, case, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.sql.functions import GenericFunction

Sessions = sessionmaker[Session]

ANSWER_SECONDS = 12.0
"""Time limit of a statement, in seconds, after which the connection is closed."""

WAL_SECONDS = 15.0
"""Time limit for switching a database to the write-ahead log, in seconds."""

CROCKFORD_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


class db_now(GenericFunction[float]):  # noqa: N801 - named like an SQL function
    """Time of the database's clock, in seconds since 1970. Leases are compared with no other clock."""

    type = Float(53)
    inherit_cache = True


@compiles(db_now, "sqlite")
def _sqlite_now(element: Any, compiler: Any, **kw: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(db_now, "postgresql")
def _postgres_now(element: Any, compiler: Any, **kw: Any) -> str:
    return "extract(epoch from clock_timestamp())::double precision"


def now_or_later(column: Any) -> Any:
    """Return the SQL for `db_now()`, or for the column's time if that is later.

    An end time computed this way is never before the start, even if the clock was set back.
    """
    return case((column > db_now(), column), else_=db_now())


def new_id() -> str:
    """Create a 26-character lower-case id that sorts by creation time (a ULID)."""
    number = int(time.time() * 1000) << 80 | int.from_bytes(os.urandom(10), "big")
    return "".join(CROCKFORD_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def json_text(document: Any) -> str:
    """Encode a document as ASCII JSON, which queries into documents expect.

    Documents without other characters use orjson, which takes a third of the time.
    """
    try:
        text = orjson.dumps(document)
    except orjson.JSONEncodeError:
        return json.dumps(document)
    return text.decode() if text.isascii() else json.dumps(document)


def open_engine(url: str, *, pool_size: int = 16, answer_seconds: float = ANSWER_SECONDS) -> Engine:
    """Create an engine with safe and fast settings for the database.

    A statement raises OperationalError if the database does not answer within `answer_seconds`, or if another
    writer locks a SQLite database for longer.
    """
    if url.startswith("sqlite"):
        return _open_sqlite(url, pool_size=pool_size, busy_seconds=answer_seconds)
    return _open_postgres(url, pool_size=pool_size, answer_seconds=answer_seconds)


def _open_postgres(url: str, *, pool_size: int, answer_seconds: float) -> Engine:
    from backend.storage import postgres  # its driver takes 6 MB of memory

    engine = create_engine(
        url.replace("postgresql://", "postgresql+psycopg://", 1),
        pool_size=pool_size,
        max_overflow=64,
        pool_pre_ping=True,
        pool_recycle=1800,
        json_serializer=json_text,
        connect_args={**postgres.CONNECTION_OPTIONS, "options": postgres.SERVER_OPTIONS},
    )

    event.listen(engine, "before_cursor_execute", postgres.choose_format)

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: Any, _record: Any, arguments: Any, parameters: Any) -> Any:
        return postgres.connect(*arguments, answer_seconds=answer_seconds, **parameters)

    return engine


def _open_sqlite(url: str, *, pool_size: int, busy_seconds: float) -> Engine:
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=64,
        json_serializer=json_text,
        connect_args={"timeout": busy_seconds},
    )

    @event.listens_for(engine, "connect")
    def configure(dbapi: Any, _record: Any) -> None:
        # The driver starts no transactions for SELECT and DDL, so the event `begin` below starts all of them.
        dbapi.isolation_level = None
        cursor = dbapi.cursor()
        _use_wal(cursor)
        for pragma in (
            "synchronous=FULL",  # a committed transaction survives a power cut
            f"busy_timeout={busy_seconds * 1000:.0f}",
            "foreign_keys=ON",
            "temp_store=MEMORY",
            "trusted_schema=OFF",
            "mmap_size=268435456",
            "journal_size_limit=67108864",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        # A deferred transaction that starts to write fails at once if another transaction is writing.
        read_only = connection.get_execution_options().get("read_only", False)
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def _use_wal(cursor: Any) -> None:
    """Switch to the write-ahead log, with retries because SQLite does not wait for other processes here."""
    deadline = time.monotonic() + WAL_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def copy_sqlite(engine: Engine, target: Path) -> None:
    """Copy a SQLite database in a consistent state, even if other connections write to it.

    Raises sqlite3.Error if the copy fails.
    """
    raw = engine.raw_connection()  # VACUUM cannot run inside a transaction
    try:
        raw.cursor().execute("VACUUM INTO ?", (str(target),))
    finally:
        raw.close()


def open_sessions(engine: Engine) -> Sessions:
    """Create a session factory. Objects stay readable after a commit."""
    return sessionmaker(engine, expire_on_commit=False)


def database_address(sessions: Sessions) -> URL:
    """Return the address of the database."""
    engine: Engine = sessions.kw["bind"]
    return engine.url


def is_postgres(session: Session) -> bool:
    """Return whether this session uses Postgres."""
    return session.get_bind().dialect.name == "postgresql"


def insert_into(session: Session, table: Any) -> Any:
    """Return an INSERT statement of this database's dialect, which supports `on_conflict_do_nothing`."""
    return postgresql.insert(table) if is_postgres(session) else sqlite.insert(table)


def interrupter(session: Session) -> Callable[[], None]:
    """Return a function that another thread can call to interrupt this session's current statement."""
    driver: Any = session.connection().connection.driver_connection
    return driver.interrupt if isinstance(driver, sqlite3.Connection) else driver.cancel_safe


@contextmanager
def open_read_session(sessions: Sessions) -> Iterator[Session]:
    """Open a read-only session, which on SQLite never waits for a writer."""
    with sessions() as session:
        session.connection(execution_options={"read_only": True})
        yield session


@contextmanager
def open_read_session_at(url: str) -> Iterator[Session]:
    """Open a read-only session of a database that is otherwise not open, and close the database after it."""
    engine = open_engine(url, pool_size=1)
    try:
        with open_read_session(open_sessions(engine)) as session:
            yield session
    finally:
        engine.dispose()
