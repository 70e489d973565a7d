"""Operations of the sandbox that read a database of Trackio or MLflow at a path without writing to it.

Nothing in the file is executed: only tables with known names and columns are read, without triggers, views,
virtual tables and functions.
"""

import sqlite3
from contextlib import closing
from typing import Any
from urllib.parse import quote

from backend.base.sandbox.operation import Operation, Request
from backend.exchange.imports import mlflow_tables, trackio_tables

MAX_ROW_BYTES = 16_000_000
ALLOWED_ACTIONS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_TRANSACTION}
ALLOWED_FUNCTIONS = {"count", "min"}

EMPTY_QUERY_BY_TABLE = {
    "metrics": "SELECT * FROM metrics LIMIT 0",
    "configs": "SELECT * FROM configs LIMIT 0",
    "params": "SELECT * FROM params LIMIT 0",
    "runs": "SELECT * FROM runs LIMIT 0",
}


def _open(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda data: data.decode(errors="replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ROW_BYTES)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA temp_store = MEMORY")  # the sandbox cannot create files
    connection.execute("PRAGMA cell_size_check = ON")
    connection.set_authorizer(_authorize)
    return connection


def _authorize(action: int, first: str | None, second: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_OK if str(second).lower() in ALLOWED_FUNCTIONS else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in ALLOWED_ACTIONS else sqlite3.SQLITE_DENY


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the columns of a plain table; none if the table does not exist."""
    query = "SELECT type, sql FROM sqlite_master WHERE name = ? COLLATE NOCASE"
    row = connection.execute(query, (table,)).fetchone()
    if row is None:
        return set()
    if row[0] != "table" or str(row[1]).split()[:2] != ["CREATE", "TABLE"]:
        raise ValueError(f"{table} is not a plain table")
    return {str(column[0]) for column in connection.execute(EMPTY_QUERY_BY_TABLE[table]).description}


def runs(request: Request) -> dict[str, Any]:
    """Return the newest runs in the order in which they began, with the column that identifies them."""
    with closing(_open(request["path"])) as connection:
        columns = {table: _columns(connection, table) for table in EMPTY_QUERY_BY_TABLE}
        if key := trackio_tables.run_key(columns):
            return {"key": key} | trackio_tables.list_runs(connection, key, columns)
        if mlflow_tables.are_tables(columns):
            return {"key": mlflow_tables.RUN_KEY} | mlflow_tables.list_runs(connection)
    raise ValueError("there is no table of metrics as Trackio or MLflow makes it")


def values(request: Request) -> dict[str, Any]:
    """Return values and completions of some rows of a run; `used` is the last row, or 0 at the end.

    A row with too many completions for one reply is continued in the next one: `done` is the number of its
    completions that were already returned.
    """
    with closing(_open(request["path"])) as connection:
        if request["key"] == mlflow_tables.RUN_KEY:
            return mlflow_tables.read_values(connection, request)
        return trackio_tables.read_values(connection, request)


OPERATIONS = {"database-runs": Operation(runs), "database-values": Operation(values)}
