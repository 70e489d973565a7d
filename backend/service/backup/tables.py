"""Save Postgres tables to files and load them with COPY, without Postgres's own programs."""

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
"""Limits of a table's unpacked size, of which the larger one applies: a number of bytes and a multiple of the
packed size. They prevent small malicious files from filling the disk.
"""


def ordered_tables() -> list[Table]:
    """Return the tables in dependency order, without browser sessions, which are not part of a backup."""
    return [table for table in Base.metadata.sorted_tables if table.name != BrowserSession.__tablename__]


def save_tables(
    connection: Connection, directory: Path, *, excluded_checkpoints: Collection[str]
) -> dict[str, SavedTable]:
    """Save all rows of all tables in the transaction's snapshot, except the checkpoints in
    `excluded_checkpoints`.
    """
    directory.mkdir(parents=True)
    saved_tables = {}
    for table in ordered_tables():
        columns = [column.name for column in table.columns]
        query = sql.SQL("SELECT {} FROM {}").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(table.name)
        )
        if table.name == Checkpoint.__tablename__ and excluded_checkpoints:
            ids = sql.SQL(", ").join(map(sql.Literal, sorted(excluded_checkpoints)))
            query = sql.SQL("{} WHERE id NOT IN ({})").format(query, ids)
        cursor = _driver(connection).cursor()
        file = directory / f"{table.name}.copy.zst"
        with (
            file.open("wb") as raw,
            zstandard.ZstdCompressor().stream_writer(raw) as packed_file,
            cursor.copy(sql.SQL("COPY ({}) TO STDOUT").format(query)) as copy,
        ):
            for block in copy:
                packed_file.write(block)
        saved_tables[table.name] = SavedTable(columns=columns, rows=cursor.rowcount)
    return saved_tables


def load_tables(connection: Connection, directory: Path, saved_tables: Mapping[str, SavedTable]) -> None:
    """Load the empty tables from a backup; raise BadBackup if a table does not get all its rows."""
    for table in ordered_tables():
        if table.name not in saved_tables:
            continue
        columns = sql.SQL(", ").join(map(sql.Identifier, saved_tables[table.name].columns))
        copy_statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table.name), columns)
        cursor = _driver(connection).cursor()
        with cursor.copy(copy_statement) as copy:
            for block in _decompress(directory, f"database/{table.name}.copy.zst"):
                copy.write(block)
        if cursor.rowcount != saved_tables[table.name].rows:
            raise BadBackup(
                f"{table.name} has {cursor.rowcount} rows, {saved_tables[table.name].rows} were saved"
            )
    _continue_numbers(connection, saved_tables)


def _decompress(directory: Path, name: str) -> Iterator[bytes]:
    size = 0
    with open_below(directory, name) as raw:
        limit = max(MAX_UNPACKED, MAX_RATIO * os.fstat(raw.fileno()).st_size)
        try:
            with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(raw) as unpacked_stream:
                while block := unpacked_stream.read(CHUNK_BYTES):
                    size += len(block)
                    if size > limit:
                        raise BadBackup(f"{name} unpacks to more than {limit:,} bytes")
                    yield block
        except zstandard.ZstdError as error:
            raise BadBackup(f"{name} cannot be unpacked: {error}") from None


def _continue_numbers(connection: Connection, saved_tables: Mapping[str, SavedTable]) -> None:
    """Continue the sequences of ids after the loaded rows."""
    for table in ordered_tables():
        if (column := table.autoincrement_column) is None or table.name not in saved_tables:
            continue
        name = connection.scalar(select(func.pg_get_serial_sequence(table.name, column.name)))
        newest = connection.scalar(select(func.max(column)))
        if name is not None and newest is not None:
            connection.execute(select(func.setval(name, newest)))


def _driver(connection: Connection) -> Any:
    return cast("Any", connection.connection.driver_connection)
