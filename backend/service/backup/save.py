"""Create a backup while runs are training: a snapshot of the database, and the checkpoints in it.

Retention may remove a checkpoint after the database snapshot was taken. The directories are therefore saved
first (as hard links, which is fast), then the database, and then new checkpoints. If a checkpoint is still
missing, another snapshot is taken, in which it is no longer listed. After the last attempt, the rows of
missing checkpoints are left out, as if retention had removed them.
"""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, Engine, delete, func, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from backend.base.errors import Conflict, Unavailable
from backend.base.settings import Settings
from backend.metrics.block_check import damage_sentence, find_damaged_blocks
from backend.rollouts.block_check import find_damaged_groups
from backend.service.backup.contents import (
    DATABASE,
    MANIFEST,
    UPLOADS,
    Manifest,
    SavedTable,
    check_contents,
    open_draft,
    write_json,
)
from backend.service.backup.files import Digest, describe, is_canonical, link_or_copy, list_files, open_below
from backend.service.backup.tables import ordered_tables, save_tables
from backend.storage.artifacts.copies import Copies
from backend.storage.artifacts.store import ArtifactFault
from backend.storage.engine import copy_sqlite, open_engine
from backend.storage.models import BrowserSession, Checkpoint
from backend.storage.schema import newest_schema, read_schema

MAX_ATTEMPTS = 5
"""Maximum number of snapshots that are taken until no checkpoint is missing."""


class SavedBackup(NamedTuple):
    """A finished backup, with details to report in the terminal."""

    manifest: Manifest
    missing: list[str]
    """Checkpoints with a row, but without a directory here or a copy in the artifact store."""
    elsewhere: int
    """Number of checkpoints whose files are only in the artifact store, or may be if it does not respond.

    Their rows are in the backup.
    """
    damage: list[str]
    """Sentences about damaged blocks of points and completions."""

    def in_words(self) -> str:
        """Return a summary of one line."""
        runs = self.manifest.tables["run"].rows
        size = sum(file.bytes for file in self.manifest.files.values())
        elsewhere_text = f", {self.elsewhere:,} more left to the artifact store" if self.elsewhere else ""
        return (
            f"{runs:,} runs, {self.manifest.checkpoints:,} checkpoints{elsewhere_text}, {size / 1e6:,.1f} MB"
        )


def save_backup(settings: Settings, directory: Path) -> SavedBackup:
    """Create a backup in `directory`, which appears when it is complete; raise Unavailable if that fails."""
    engine, copies = open_engine(settings.effective_database_url, pool_size=2), Copies(settings)
    try:
        with open_draft(directory) as draft:
            for attempt in range(MAX_ATTEMPTS):
                _take_checkpoints(settings.state / "runs", draft / "runs")
                with _open_snapshot(engine, draft) as connection:
                    rows = _checkpoints(connection)
                    absent_ids = _match_checkpoints(rows, settings.state / "runs", draft / "runs")
                    missing_ids = [
                        row_id for row_id in absent_ids if not _may_have_copy(copies, rows[row_id])
                    ]
                    if missing_ids and attempt < MAX_ATTEMPTS - 1:
                        continue
                    tables = _save_tables(connection, draft, missing_ids)
                    damage = _find_damage(connection)
                    break
            _take_uploads(settings.datasets_dir, draft)
            manifest = _manifest(engine, draft, tables, len(rows) - len(absent_ids))
            check_contents(manifest)
            write_json(draft / MANIFEST, manifest.model_dump(mode="json"))
    except (OSError, sqlite3.Error, OperationalError) as error:
        reason = getattr(error, "strerror", None) or str(getattr(error, "orig", error)).splitlines()[0]
        raise Unavailable(f"no backup was written to {directory}: {reason}") from None
    finally:
        engine.dispose()
    return SavedBackup(
        manifest, [rows[row_id] for row_id in missing_ids], len(absent_ids) - len(missing_ids), damage
    )


def _may_have_copy(copies: Copies, name: str) -> bool:
    """Return whether the artifact store has the checkpoint, or is unavailable and may have it."""
    try:
        return copies.has(*name.split("/", 1))
    except ArtifactFault:
        return True


def _find_damage(connection: Connection) -> list[str]:
    """Return sentences about damaged points and completions in this backup."""
    session = Session(connection)
    points = [damage_sentence(session, block, reason) for block, reason in find_damaged_blocks(session)]
    return [*points, *find_damaged_groups(session)]


def _take_checkpoints(source: Path, target: Path) -> None:
    """Save all checkpoints that were not saved before."""
    for manifest in sorted(source.glob(f"*/[!.]*/{MANIFEST}")):
        _take_checkpoint(manifest.parent, target / manifest.parent.relative_to(source))


def _take_checkpoint(source: Path, target: Path) -> bool:
    """Save a checkpoint; return whether all its files exist."""
    if target.exists():
        return True
    try:
        names = [MANIFEST, *json.loads((source / MANIFEST).read_text())["files"]]
        if not all(map(is_canonical, names)):
            return False  # an entry outside the directory, so we did not write it
        for name in names:
            link_or_copy(source / name, target / name)
    except FileNotFoundError:  # retention has just removed it
        shutil.rmtree(target, ignore_errors=True)
        return False
    except (ValueError, TypeError, KeyError):  # damaged, so that no run can continue from it
        return False
    return True


def _match_checkpoints(rows: dict[str, str], source: Path, target: Path) -> list[str]:
    """Return the ids of rows whose checkpoint is missing, and remove saved checkpoints without a row."""
    missing_ids = [
        row_id
        for row_id, name in rows.items()
        if not (is_canonical(name) and _take_checkpoint(source / name, target / name))
    ]
    for directory in sorted(target.glob("*/*")):
        if directory.relative_to(target).as_posix() not in set(rows.values()):
            shutil.rmtree(directory)
    return missing_ids


def _take_uploads(datasets_dir: Path, draft: Path) -> None:
    for path in sorted((datasets_dir / UPLOADS).glob("*")):
        if path.is_file() and not path.name.startswith("."):
            link_or_copy(path, draft / UPLOADS / path.name)


@contextmanager
def _open_snapshot(engine: Engine, draft: Path) -> Iterator[Connection]:
    """Yield a connection to a consistent snapshot of the database."""
    if engine.dialect.name == "postgresql":
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with engine.connect().execution_options(**options) as connection, connection.begin():
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            _check_schema(connection)
            yield connection
        return
    copy = draft / DATABASE
    copy.parent.mkdir(exist_ok=True)
    copy.unlink(missing_ok=True)
    with engine.connect() as connection:
        _check_schema(connection)
    copy_sqlite(engine, copy)
    copied_engine = open_engine(f"sqlite:///{copy}", pool_size=1)
    try:
        with copied_engine.begin() as connection:
            yield connection
    finally:
        copied_engine.dispose()


def _check_schema(connection: Connection) -> None:
    if (schema := read_schema(connection)) != newest_schema():
        raise Conflict(
            f"the database has schema {schema or 'none'}, this version has {newest_schema()}: "
            "start the service once to upgrade it"
        )


def _checkpoints(connection: Connection) -> dict[str, str]:
    """Return the relative path of each checkpoint by the id of its row."""
    rows = connection.execute(select(Checkpoint.id, Checkpoint.run_id, Checkpoint.path))
    return {row.id: f"{row.run_id}/{row.path}" for row in rows}


def _save_tables(connection: Connection, draft: Path, missing_ids: list[str]) -> dict[str, SavedTable]:
    if connection.dialect.name == "postgresql":
        return save_tables(connection, draft / "database", excluded_checkpoints=missing_ids)
    connection.execute(text("PRAGMA secure_delete = ON"))
    connection.execute(delete(BrowserSession))  # browser sessions are not transferred to another installation
    connection.execute(delete(Checkpoint).where(Checkpoint.id.in_(missing_ids)))
    return {
        table.name: SavedTable(
            columns=[column.name for column in table.columns],
            rows=connection.scalar(select(func.count()).select_from(table)) or 0,
        )
        for table in ordered_tables()
    }


def _manifest(engine: Engine, draft: Path, tables: dict[str, SavedTable], checkpoints: int) -> Manifest:
    try:
        program = version("grpolab")
    except PackageNotFoundError:
        program = "from a working tree"
    return Manifest(
        program=program,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        database=engine.dialect.name,
        schema_revision=newest_schema(),
        tables=tables,
        checkpoints=checkpoints,
        files={name: _describe_file(draft, name) for name in list_files(draft)},
    )


def _describe_file(draft: Path, name: str) -> Digest:
    with open_below(draft, name) as file:
        return describe(file)
