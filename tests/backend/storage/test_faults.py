"""Tests of the one-sentence explanations of database and disk errors."""

import errno
import sqlite3
import subprocess

import psycopg
import pytest
from safetensors import SafetensorError
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from backend.storage.engine import open_engine, open_sessions
from backend.storage.faults import database_fault, disk_fault
from tests.disks import small_disk

SQLITE_URL = "sqlite:////state/grpolab.db"
POSTGRES_URL = "postgresql+psycopg://lab@/lab"


def sqlite_error(code):
    original = sqlite3.OperationalError("its own words")
    original.sqlite_errorcode = code
    return database_fault(OperationalError("statement", {}, original), SQLITE_URL)


def postgres_error(sqlstate):
    original = psycopg.errors.lookup(sqlstate)("its own words")
    return database_fault(OperationalError("statement", {}, original), POSTGRES_URL)


@pytest.mark.parametrize(
    ("code", "kind", "phrase"),
    [
        (sqlite3.SQLITE_FULL, "full", "the disk of the database /state/grpolab.db is full: "),
        (
            sqlite3.SQLITE_IOERR_FSYNC,
            "broken",
            "the disk of the database /state/grpolab.db reports an error: ",
        ),
        (sqlite3.SQLITE_READONLY, "read_only", "the database /state/grpolab.db is read-only"),
        (sqlite3.SQLITE_BUSY, "busy", "the database /state/grpolab.db is locked by another program"),
        (sqlite3.SQLITE_CANTOPEN, "away", "the database file /state/grpolab.db cannot be opened"),
        (sqlite3.SQLITE_CORRUPT, "damaged", "the database /state/grpolab.db is damaged"),
    ],
)
def test_each_error_code_of_sqlite_has_its_sentence(code, kind, phrase):
    fault = sqlite_error(code)
    assert fault.kind == kind
    assert fault.sentence.startswith(phrase)


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [("53100", "full"), ("25006", "read_only"), ("58030", "broken"), ("57P01", "away"), ("57014", "busy")],
)
def test_each_error_code_of_postgres_has_its_sentence(sqlstate, kind):
    assert postgres_error(sqlstate).kind == kind


def test_a_lost_connection_means_that_the_database_is_unreachable():
    error = OperationalError("statement", {}, psycopg.OperationalError("server closed the connection"))
    assert database_fault(error, POSTGRES_URL).kind == "away"


def test_other_errors_are_not_database_faults():
    assert sqlite_error(sqlite3.SQLITE_ERROR) is None
    original = sqlite3.IntegrityError("UNIQUE constraint failed")
    original.sqlite_errorcode = sqlite3.SQLITE_CONSTRAINT_UNIQUE
    assert database_fault(IntegrityError("statement", {}, original), SQLITE_URL) is None
    assert database_fault(ValueError("x"), SQLITE_URL) is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "full"),
        (OSError(errno.EROFS, "Read-only file system"), "read_only"),
        (OSError(errno.EIO, "Input/output error"), "broken"),
        (SafetensorError("Error: I/O error: No space left on device (os error 28)"), "full"),
    ],
)
def test_a_disk_fault_is_recognised_from_the_error(error, kind, tmp_path):
    fault = disk_fault(error, tmp_path / "not" / "there")
    assert fault.kind == kind
    assert str(tmp_path) in fault.sentence


def test_sqlite_on_a_full_or_read_only_disk_reports_it_and_can_still_read(tmp_path):
    with small_disk(tmp_path / "disk", megabytes=2) as disk:
        url = f"sqlite:///{disk}/lab.db"
        engine = open_engine(url)
        sessions = open_sessions(engine)
        with sessions.begin() as session:
            session.execute(text("CREATE TABLE t (x BLOB)"))
        (disk / "filler").write_bytes(b"x" * (1_900_000 - 300_000))

        def write():
            with sessions.begin() as session:
                session.execute(text("INSERT INTO t VALUES (zeroblob(1000000))"))

        with pytest.raises(SQLAlchemyError) as error_info:
            write()
        assert database_fault(error_info.value, url).kind == "full"
        with sessions() as session:
            assert session.scalar(text("SELECT count(*) FROM t")) == 0
        (disk / "filler").unlink()
        write()
        engine.dispose()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(SQLAlchemyError) as error_info:
            write()
        assert database_fault(error_info.value, url).kind == "read_only"
