"""Classify errors of the database and the disk, and explain each in one sentence."""

import errno
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sqlalchemy import URL, make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from backend.base.text import size_text

Kind = Literal["away", "busy", "full", "read_only", "broken", "damaged", "older"]
"""Kind of a fault. All except `damaged` and `older` may end on their own or when disk space is freed."""

DISK_FAULT_BY_ERRNO: dict[int, Kind] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EFBIG: "full",
    errno.EROFS: "read_only",
    errno.EIO: "broken",
}
"""Kind of disk fault by errno. A missing permission or file is not a disk fault."""

SQLITE_FAULT_BY_CODE: dict[int, Kind] = {
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_PROTOCOL: "busy",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_PERM: "read_only",
    sqlite3.SQLITE_IOERR: "broken",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
    sqlite3.SQLITE_CANTOPEN: "away",
}
"""Kind of fault by SQLite's primary result code."""

POSTGRES_FAULT_BY_STATE: dict[str, Kind] = {
    "53100": "full",
    "25006": "read_only",
    "58030": "broken",
    "XX001": "damaged",
    "XX002": "damaged",
    "53200": "busy",
    "53300": "busy",
    "55P03": "busy",
    "57014": "busy",
    "40001": "busy",
    "40P01": "busy",
}
"""Kind of fault by Postgres's SQLSTATE. An OperationalError with any other SQLSTATE means `away`."""


class Fault(NamedTuple):
    """The reason why data cannot be stored or read at the moment."""

    kind: Kind
    sentence: str


def database_fault(error: BaseException, url: str | URL) -> Fault | None:
    """Return the fault of the database at `url` that caused an error, or None if it did not cause it."""
    if isinstance(error, PoolTimeout):
        return Fault("busy", "the database is busy: every connection is in use")
    if not isinstance(error, SQLAlchemyError):
        return None
    address = make_url(url)
    if address.get_backend_name() == "sqlite":
        return _sqlite_fault(error, Path(address.database or ""))
    return _postgres_fault(error)


def _sqlite_fault(error: SQLAlchemyError, file: Path) -> Fault | None:
    original = getattr(error, "orig", None)
    code = getattr(original, "sqlite_errorcode", None)
    kind = SQLITE_FAULT_BY_CODE.get(code & 0xFF) if isinstance(code, int) else _by_class(error)
    if kind == "broken" and is_full(file.parent):
        kind = "full"  # the shared index of the write-ahead log could not grow
    if kind == "away" and is_read_only(file.parent):
        kind = "read_only"  # reading also requires writing the shared index
    sentences = {
        "away": f"the database file {file} cannot be opened",
        "busy": f"the database {file} is locked by another program",
        "full": f"the disk of the database {file} is full: {free_text(file.parent)} free",
        "read_only": f"the database {file} is read-only",
        "broken": f"the disk of the database {file} reports an error: {original}",
        "damaged": f"the database {file} is damaged ({original}): restore a backup",
    }
    return Fault(kind, sentences[kind]) if kind else None


def _postgres_fault(error: SQLAlchemyError) -> Fault | None:
    state = getattr(getattr(error, "orig", None), "sqlstate", None) or ""
    kind = POSTGRES_FAULT_BY_STATE.get(state) or _by_class(error)
    sentences = {
        "away": "the database does not answer",
        "busy": "the database is too busy to answer in time",
        "full": "the disk of the database server is full",
        "read_only": "the database server is read-only",
        "broken": "the database server cannot read or write its own files",
        "damaged": "the database is damaged: restore a backup",
    }
    return Fault(kind, sentences[kind]) if kind else None


def _by_class(error: SQLAlchemyError) -> Kind | None:
    """Return the kind of fault of a connection error without a code, or None for other errors."""
    is_lost = isinstance(error, DBAPIError) and error.connection_invalidated
    return "away" if is_lost or isinstance(error, OperationalError | InterfaceError) else None


def disk_fault(error: BaseException, path: Path) -> Fault | None:
    """Return the fault of the disk that holds `path`, or None if the error is not a disk error."""
    kind = DISK_FAULT_BY_ERRNO.get(_error_number(error))
    sentences: dict[Any, str] = {
        "full": f"the disk of {path} is full: {free_text(path)} free",
        "read_only": f"the disk of {path} is read-only",
        "broken": f"the disk of {path} reports a write error",
    }
    return Fault(kind, sentences[kind]) if kind else None


def _error_number(error: BaseException) -> int:
    """Return the errno of an OSError, or the one in the message of a native library, or 0 without one."""
    if isinstance(error, OSError):
        return error.errno or 0
    prefix, separator, suffix = str(error).partition("os error ")
    digits = suffix.partition(")")[0]
    return int(digits) if separator and prefix and digits.isdecimal() else 0


def free_bytes(path: Path) -> int | None:
    """Return the free space on the disk of `path` in bytes, or None if it cannot be determined.

    If `path` does not exist, its nearest existing parent is used.
    """
    for directory in (path, *path.parents):
        try:
            return shutil.disk_usage(directory).free
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None


def free_text(path: Path) -> str:
    """Return the free space on the disk of `path` as text."""
    available_bytes = free_bytes(path)
    return "an unknown amount" if available_bytes is None else size_text(available_bytes)


def is_full(path: Path) -> bool:
    """Return whether the disk of `path` has less than 1 MB of free space."""
    available_bytes = free_bytes(path)
    return available_bytes is not None and available_bytes < 1_000_000


def is_read_only(path: Path) -> bool:
    """Return whether the disk of `path` is read-only."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False
