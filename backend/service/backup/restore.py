"""Restore a backup in place of an installation.

A mark in the state directory shows that a restore is in progress. If it is killed, nothing starts until it is
run again, so old and new data are never mixed. On Postgres the rows are replaced in one transaction, on
SQLite the file is replaced by a rename. A backup may come from an untrusted source: it is examined first and
copied into new directories, and a backup that is refused changes nothing.
"""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg
from sqlalchemy import Connection, MetaData, delete, func, inspect, make_url, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from backend.base.durable_files import make_directory, publish, sync
from backend.base.errors import Conflict, Unavailable
from backend.base.settings import Settings, service_url
from backend.metrics.block_check import find_damaged_blocks
from backend.runs.events import add_event
from backend.runs.high_water_mark import forget_mark
from backend.runs.lifecycle import release_run
from backend.runs.workers.store import live_slots
from backend.service.backup.contents import DATABASE, UPLOADS, Manifest, read_manifest, verify
from backend.service.backup.examine import check_counts, check_rows, check_sqlite
from backend.service.backup.files import BadBackup, Digest, copy_out
from backend.service.backup.tables import load_tables, ordered_tables
from backend.service.maintenance.damaged_blocks import tell_damage
from backend.service.process.instance_lock import AlreadyRunning, hold_instance
from backend.service.process.preflight import check_state_dir, restore_mark
from backend.storage.engine import open_engine, open_read_session_at
from backend.storage.migrate import schema_lock, upgrade_within
from backend.storage.models import BrowserSession, Experiment, Run, Singleton, Worker
from backend.storage.rollout_words import empty_index
from backend.storage.schema import known_schemas, newest_schema, unknown_schema_reason

RESTORED_REASON = "restored from a backup"
DRAFT_NAME = ".runs.restored"


def restore_backup(settings: Settings, directory: Path, *, overwrite: bool = False) -> Manifest:
    """Replace the installation with a backup; interrupted runs continue from their newest checkpoint.

    Raise BadBackup for an invalid backup, Conflict if the installation is in use or not empty, and
    Unavailable.
    """
    manifest = read_manifest(directory)
    _check_fits(settings, manifest)
    verify(directory, manifest)
    check_state_dir(settings)
    try:
        with hold_instance(settings, service_url(settings)):
            _check_place(settings, overwrite=overwrite or restore_mark(settings).exists())
            _replace(settings, directory, manifest)
    except AlreadyRunning as running:
        raise Conflict(f"{running}: stop it first") from None
    except OSError as error:
        raise Unavailable(
            f"the backup could not be restored: {error.strerror or error}; fix that and run it again"
        ) from None
    return manifest


def _check_fits(settings: Settings, manifest: Manifest) -> None:
    kind = make_url(settings.effective_database_url).get_backend_name()
    if kind != manifest.database:
        raise BadBackup(f"this is a backup of {manifest.database}, but DATABASE_URL names {kind}")
    if manifest.schema_revision not in known_schemas():
        raise BadBackup(
            f"this backup has schema {manifest.schema_revision}, "
            f"{unknown_schema_reason(manifest.schema_revision)}"
        )
    columns_by_table = {table.name: set(table.columns.keys()) for table in ordered_tables()}
    for name, table in manifest.tables.items():
        if name not in columns_by_table or (
            unexpected_columns := sorted(set(table.columns) - columns_by_table[name])
        ):
            unknown_name = name if name not in columns_by_table else f"{name}.{unexpected_columns[0]}"
            raise BadBackup(
                f"this backup has a table or column that this version does not know: {unknown_name!r:.200}"
            )


def _check_place(settings: Settings, *, overwrite: bool) -> None:
    content = _count_content(settings)
    if content.has_workers:
        raise Conflict("a worker is using this database, or was half a minute ago: stop all workers first")
    has_files = any((settings.state / "runs").glob("*"))
    if (content.has_rows or has_files) and not overwrite:
        raise Conflict(
            f"{settings.state} or its database is not empty: "
            "set OVERWRITE=1 to replace them, or choose another STATE_DIR or DATABASE_URL"
        )


class Content(NamedTuple):
    """What a database currently contains."""

    has_rows: bool
    has_workers: bool = False


def _count_content(settings: Settings) -> Content:
    file = _sqlite_file(settings)
    if file is not None and not file.exists():
        return Content(has_rows=False)
    try:
        with open_read_session_at(settings.effective_database_url) as session:
            if not inspect(session.connection()).has_table(Run.__tablename__):
                return Content(has_rows=False)
            counts = [session.scalar(select(func.count()).select_from(table)) for table in (Run, Experiment)]
            return Content(any(counts), bool(live_slots(session)))
    except SQLAlchemyError as error:
        if file is None:
            raise Unavailable(f"the database does not answer: {_reason(error)}") from None
        return Content(has_rows=True)  # damaged or from another version, which are reasons to restore


def _sqlite_file(settings: Settings) -> Path | None:
    url = make_url(settings.effective_database_url)
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None


def _reason(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]


def _replace(settings: Settings, directory: Path, manifest: Manifest) -> None:
    runs, file = settings.state / "runs", _sqlite_file(settings)
    if file is not None:
        _close(file)
    with _restore_mark(settings, directory):
        draft = _take_files(settings, directory, manifest)
        try:
            if file is None:
                _replace_rows(settings, directory, manifest)
            else:
                _replace_file(file, directory, manifest)
        except SQLAlchemyError as error:
            raise Unavailable(f"the database could not be restored: {_reason(error)}; run it again") from None
        replaced_directory = settings.state / ".runs.replaced"
        shutil.rmtree(replaced_directory, ignore_errors=True)
        if runs.exists():
            runs.rename(replaced_directory)
        draft.rename(runs)
        sync(settings.state)
    shutil.rmtree(replaced_directory, ignore_errors=True)


@contextmanager
def _restore_mark(settings: Settings, directory: Path) -> Iterator[None]:
    """Prevent every start until the `with` block ends; a refused backup leaves no mark."""
    marker = restore_mark(settings)
    was_interrupted = marker.exists()
    marker.unlink(missing_ok=True)
    with marker.open("x") as file:
        file.write(f"{directory}\n")
    sync(marker)
    sync(settings.state)
    try:
        yield
    except BadBackup:
        shutil.rmtree(settings.state / DRAFT_NAME, ignore_errors=True)
        if not was_interrupted:
            marker.unlink()
            sync(settings.state)
        raise
    forget_mark(settings)
    sync(settings.state)
    marker.unlink()
    sync(settings.state)


def _take_files(settings: Settings, directory: Path, manifest: Manifest) -> Path:
    """Copy checkpoints into a draft directory, and uploads next to the existing ones."""
    uploads = settings.datasets_dir / UPLOADS
    if uploads.is_symlink():
        raise BadBackup(
            f"{uploads} is a symbolic link, and datasets are not written through links: make it a directory"
        )
    draft = settings.state / DRAFT_NAME
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    for name, expected in manifest.files.items():
        top, _, path_below = name.partition("/")
        if top == "runs":
            copy_out(directory, name, draft / path_below, expected)
        elif top == UPLOADS:
            _take_upload(directory, name, uploads / path_below, expected)
    for path in [*draft.rglob("*"), draft]:
        sync(path)
    return draft


def _take_upload(directory: Path, name: str, target: Path, expected_digest: Digest) -> None:
    """Copy a complete dataset under its name, unless it already exists."""
    if target.exists() or target.is_symlink():
        return
    draft = target.with_name(f".{target.name}.restored")
    make_directory(target.parent, mode=0o750)
    draft.unlink(missing_ok=True)
    copy_out(directory, name, draft, expected_digest)
    publish(draft, target)


def _replace_file(file: Path, directory: Path, manifest: Manifest) -> None:
    draft = file.with_name(f".{file.name}.restored")
    for temporary_file in file.parent.glob(f"{draft.name}*"):
        temporary_file.unlink()
    try:
        copy_out(directory, DATABASE, draft, manifest.files[DATABASE])
        check_sqlite(draft, manifest.schema_revision)
        engine = open_engine(f"sqlite:///{draft}", pool_size=1)
        try:
            with schema_lock(engine) as connection:
                check_counts(connection, manifest.schema_revision, manifest.tables)
                _finish_database(connection, manifest)
        finally:
            engine.dispose()
    except BadBackup:
        for temporary_file in file.parent.glob(f"{draft.name}*"):
            temporary_file.unlink()
        raise
    _close(file)
    publish(draft, file)


def _close(file: Path) -> None:
    """Remove the log of the old database; raise Conflict if another process has the database open."""
    if not file.exists():
        return
    with closing(sqlite3.connect(file, timeout=1)) as connection:
        try:
            connection.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.OperationalError as error:
            raise Conflict(f"{file} is in use by another process ({error}): stop it first") from None
        except sqlite3.DatabaseError:  # damaged, but it will be replaced
            pass
    for suffix in ("-wal", "-shm", "-journal"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)
    sync(file.parent)  # otherwise a log that reappears would be applied to the new database


def _replace_rows(settings: Settings, directory: Path, manifest: Manifest) -> None:
    engine = open_engine(settings.effective_database_url, pool_size=1)
    try:
        with schema_lock(engine) as connection:
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            old_tables = MetaData()
            old_tables.reflect(connection)
            old_tables.drop_all(connection)
            upgrade_within(connection, manifest.schema_revision)
            load_tables(connection, directory, manifest.tables)
            _finish_database(connection, manifest)
    except psycopg.OperationalError as error:  # COPY uses the driver directly
        raise Unavailable(f"the database could not be restored: {error}; run it again") from None
    except psycopg.Error as error:
        first_line = str(error).splitlines()[0]
        raise BadBackup(f"its database contains rows that Postgres rejects: {first_line:.200}") from None
    finally:
        engine.dispose()


def _finish_database(connection: Connection, manifest: Manifest) -> None:
    """Upgrade the database, remove workers and sessions, and return interrupted runs to the queue."""
    upgrade_within(connection, newest_schema())
    check_rows(connection)
    empty_index(connection)
    session = Session(connection)
    tell_damage(session, find_damaged_blocks(session))
    session.execute(delete(BrowserSession))
    session.execute(delete(Worker))
    session.execute(delete(Singleton))
    for run in session.scalars(select(Run).where(Run.status == "running", Run.writer.is_(None))).all():
        release_run(session, run.id, run.attempt, RESTORED_REASON)
    add_event(session, "lifecycle", f"the installation was restored from its backup of {manifest.created_at}")
    session.flush()
