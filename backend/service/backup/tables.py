"""Tables of Postgres to files and back, with COPY: no program of Postgres's version is needed."""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import zstandard
from psycopg import sql
from sqlalchemy import Connection, Table, func, select

from backend.service.backup.contents import SavedTable
from backend.service.backup.files import BadBackup, open_below
from backend.storage.models import Base, BrowserSession, Checkpoint

CHUNK_BYTES = 1 << 20

MAX_UNPACKED = 1 << 30
MAX_RATIO = 1_000
"""Limit of a table's unpacked size: so many bytes, or so many times its packed size. A few kilobytes of zeros
packed by a stranger fill no disk."""


def ordered_tables() -> list[Table]:
    """Tables in an order in which none refers to a later one; sessions are not part of a backup."""
    return [table for table in Base.metadata.sorted_tables if table.name != BrowserSession.__tablename__]


def save_tables(
    connection: Connection, directory: Path, *, without: Collection[str]
) -> dict[str, SavedTable]:
    """Save every row of every table but the checkpoints `without`, as the connection's transaction sees
    them.
    """
    directory.mkdir(parents=True)
    saved = {}
    for table in ordered_tables():
        columns = [column.name for column in table.columns]
        query = sql.SQL("SELECT {} FROM {}").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(table.name)
        )
        if table.name == Checkpoint.__tablename__ and without:
            ids = sql.SQL(", ").join(map(sql.Literal, sorted(without)))
            query = sql.SQL("{} WHERE id NOT IN ({})").format(query, ids)
        cursor = _driver(connection).cursor()
        file = directory / f"{table.name}.copy.zst"
        with (
            file.open("wb") as raw,
            zstandard.ZstdCompressor().stream_writer(raw) as packed,
            cursor.copy(sql.SQL("COPY ({}) TO STDOUT").format(query)) as copy,
        ):
            for block in copy:
                packed.write(block)
        saved[table.name] = SavedTable(columns=columns, rows=cursor.rowcount)
    return saved


def load_tables(connection: Connection, directory: Path, saved: Mapping[str, SavedTable]) -> None:
    """Fill the empty tables from a backup; raises BadBackup when a table did not get all its rows."""
    for table in ordered_tables():
        if table.name not in saved:
            continue
        columns = sql.SQL(", ").join(map(sql.Identifier, saved[table.name].columns))
        order = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table.name), columns)
        cursor = _driver(connection).cursor()
        with cursor.copy(order) as copy:
            for block in _decompress(directory, f"database/{table.name}.copy.zst"):
                copy.write(block)
        if cursor.rowcount != saved[table.name].rows:
            raise BadBackup(f"{table.name} has {cursor.rowcount} rows, {saved[table.name].rows} were saved")
    _continue_numbers(connection, saved)


def _decompress(directory: Path, name: str) -> Iterator[bytes]:
    size = 0
    with open_below(directory, name) as raw:
        limit = max(MAX_UNPACKED, MAX_RATIO * os.fstat(raw.fileno()).st_size)
        try:
            with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(raw) as unpacked:
                while block := unpacked.read(CHUNK_BYTES):
                    size += len(block)
                    if size > limit:
                        raise BadBackup(f"{name} unpacks to more than {limit:,} bytes")
                    yield block
        except zstandard.ZstdError as error:
            raise BadBackup(f"{name} cannot be unpacked: {error}") from None


def _continue_numbers(connection: Connection, saved: Mapping[str, SavedTable]) -> None:
    """Continue the sequences of ids after the rows that were loaded."""
    for table in ordered_tables():
        if (column := table.autoincrement_column) is None or table.name not in saved:
            continue
        name = connection.scalar(select(func.pg_get_serial_sequence(table.name, column.name)))
        newest = connection.scalar(select(func.max(column)))
        if name is not None and newest is not None:
            connection.execute(select(func.setval(name, newest)))


def _driver(connection: Connection) -> Any:
    return cast("Any", connection.connection.driver_connection)
