"""Tests that hostile backups are refused in one sentence and change nothing."""

import json
import os
import shutil
import sqlite3
from contextlib import closing, suppress
from hashlib import sha256

import pytest
import zstandard
from sqlalchemy import select, update

from backend.metrics.lineage import load_lineages
from backend.service.backup import tables
from backend.service.backup.contents import DATABASE, MANIFEST, read_manifest
from backend.service.backup.files import BadBackup
from backend.service.backup.restore import restore_backup
from backend.service.backup.save import save_backup
from backend.service.process.preflight import check_database, restore_mark
from backend.storage.engine import open_engine, open_sessions
from backend.storage.models import BrowserSession, Checkpoint, Run
from tests.factories import make_checkpoint, make_run, write_metric
from tests.gate import first_in_gate


@pytest.fixture
def installation(settings, database):
    """An installation with one run, its checkpoint and an upload."""
    installed_settings = settings.model_copy(update={"database_url": database.url})
    installed_settings.run_dir.mkdir(parents=True)
    (installed_settings.datasets_dir / "uploads").mkdir(parents=True)
    (installed_settings.datasets_dir / "uploads" / "abc.jsonl").write_text("{}\n")
    with database.sessions.begin() as session:
        run = make_run(session, status="finished", name="done")
        write_metric(session, run, "loss", {1: 0.5, 2: 0.25})
        make_checkpoint(session, run, installed_settings.state, step=3)
    database.engine.dispose()
    return installed_settings


@pytest.fixture
def backup(installation, tmp_path):
    """A valid backup of the installation, which tests then modify."""
    save_backup(installation, tmp_path / "backup")
    return tmp_path / "backup"


@pytest.fixture
def outside(tmp_path):
    """A file that must not be changed."""
    path = tmp_path / "outside" / "precious"
    path.parent.mkdir()
    path.write_text("precious")
    return path


def take_snapshot(*directories):
    """Return every file and link below these paths with its content, except databases.

    Databases are compared by their rows elsewhere."""
    return {
        str(path): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for directory in directories
        for path in sorted(directory.rglob("*"))
        if (path.is_symlink() or path.is_file()) and "grpolab" not in path.name and path.suffix != ".lock"
    }


def add_file(backup, name, content, *, content_path=None):
    """List a file in the manifest as if it had been saved, with its content in `content_path`."""
    manifest = json.loads((backup / MANIFEST).read_text())
    manifest["files"][name] = {"bytes": len(content), "sha256": sha256(content).hexdigest()}
    (backup / MANIFEST).write_text(json.dumps(manifest))
    with suppress(OSError, ValueError):
        path = backup / (content_path or name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def assert_refused(installation, backup, phrase, *, among=()):
    snapshot_before = take_snapshot(installation.state, installation.datasets_dir, *among)
    engine = open_engine(installation.effective_database_url, pool_size=1)
    with open_sessions(engine)() as session:
        runs = session.scalars(select(Run.name)).all()
    engine.dispose()
    with pytest.raises(BadBackup, match=phrase) as error_info:
        restore_backup(installation, backup, overwrite=True)
    assert "\n" not in error_info.value.detail
    assert take_snapshot(installation.state, installation.datasets_dir, *among) == snapshot_before
    assert not restore_mark(installation).exists()
    check_database(installation)
    with open_sessions(engine)() as session:
        assert session.scalars(select(Run.name)).all() == runs
    engine.dispose()


NAMES = [
    "/etc/cron.d/evil",
    "runs//{outside}",
    "uploads/{outside}",
    "runs/../../evil",
    "runs/run/../../../evil",
    "../evil",
    "runs/run/s1/./model",
    "./runs/run/s1/model",
    "runs/run/s1/",
    "runs/run/s1/a//b",
    "runs\\run\\s1\\model",
    "runs/run/s1/..\\..\\evil",
    "runs/run/s1/a\0b",
    "runs/run/s1/a\nb",
    "runs/run/s1/\x1b[2J",
    "runs/run/s1/\ud800",
    "runs/run/s1/e\u0301",
    "runs/run/s1/" + "x" * 256,
    "runs/run/s1/" + "x/" * 600 + "x",
    "",
    ".",
    "runs",
    "uploads",
    "runs/run/loose",
    "runs/.hidden/s1/model",
    "runs/run/.draft/model",
    "uploads/.draft-1",
    "uploads/deeper/file.jsonl",
    "token",
    "run/instance.lock",
    "database/other.db",
    "manifest.json",
    "runs/run/s1/pytorch_model.bin",
    "runs/run/s1/optimizer.PT",
    "runs/run/s1/modeling.py",
]


@pytest.mark.parametrize("name", first_in_gate(8, NAMES))
def test_a_name_that_leaves_its_directory_is_refused(installation, backup, outside, name):
    add_file(backup, name.format(outside=outside), b"evil", content_path="runs/run/s1/evil")
    with pytest.raises(BadBackup):
        restore_backup(installation, backup, overwrite=True)
    (backup / "runs/run/s1/evil").unlink(missing_ok=True)
    assert_refused(
        installation,
        backup,
        "the backup (names|has|contains)|is incomplete|cannot be read",
        among=[outside.parent],
    )
    assert outside.read_text() == "precious"


@pytest.mark.parametrize("position", ["file", "parent", "top", "fifo"])
def test_a_link_or_a_pipe_in_a_backup_is_not_followed(installation, backup, outside, position):
    content = outside.read_bytes()
    if position == "file":
        add_file(backup, "runs/r/s1/model", content)
        (backup / "runs/r/s1/model").unlink()
        (backup / "runs/r/s1/model").symlink_to(outside)
    elif position == "parent":
        add_file(backup, "runs/r/s1/precious", content)
        shutil.rmtree(backup / "runs/r/s1")
        (backup / "runs/r/s1").symlink_to(outside.parent)
    elif position == "top":
        (backup / "uploads").rename(outside.parent / "uploads")
        (backup / "uploads").symlink_to(outside.parent / "uploads")
    else:
        add_file(backup, "runs/r/s1/model", b"")
        (backup / "runs/r/s1/model").unlink()
        os.mkfifo(backup / "runs/r/s1/model")
    assert_refused(installation, backup, "is incomplete", among=[outside.parent])


def test_existing_files_are_not_overwritten_and_links_in_the_target_not_followed(
    installation, backup, outside
):
    add_file(backup, "uploads/new.jsonl", b"evil")
    (
        installation.datasets_dir / "uploads" / "abc.jsonl"
    ).unlink()  # the file in the backup is a hard link to it
    (installation.datasets_dir / "uploads" / "abc.jsonl").write_text("of this installation")
    (installation.datasets_dir / "uploads" / "new.jsonl").symlink_to(outside.parent / "dangling")
    restore_backup(installation, backup, overwrite=True)
    assert (installation.datasets_dir / "uploads" / "abc.jsonl").read_text() == "of this installation"
    assert [path.name for path in outside.parent.iterdir()] == ["precious"]
    shutil.rmtree(installation.datasets_dir / "uploads")
    (installation.datasets_dir / "uploads").symlink_to(outside.parent)
    assert_refused(installation, backup, "is a symbolic link", among=[outside.parent])


def test_restored_files_do_not_change_with_the_backup(installation, backup, database):
    database.engine.dispose()
    restore_backup(installation, backup, overwrite=True)
    for path in backup.rglob("*"):
        if path.is_file():
            path.write_bytes(b"changed by whoever owns the backup")
    restored_files = [path for path in (installation.state / "runs").rglob("*") if path.is_file()]
    assert restored_files
    assert not any(b"changed" in path.read_bytes() for path in restored_files)
    assert all(path.stat().st_nlink == 1 for path in restored_files)


@pytest.mark.parametrize(
    "change",
    [
        {"files": []},
        {"files": {"uploads/abc.jsonl": {"bytes": "3", "sha256": "0" * 64}}},
        {"files": {"uploads/abc.jsonl": {"bytes": -1, "sha256": "0" * 64}}},
        {"files": {"uploads/abc.jsonl": {"bytes": 3, "sha256": "../../evil"}}},
        {"files": {"uploads/abc.jsonl": {"bytes": 10**30, "sha256": "0" * 64}}},
        {"tables": None},
        {"tables": {"run": {"columns": "id", "rows": 1}}},
        {"tables": {"run": {"columns": ["id"], "rows": True}}},
        {"checkpoints": 1e308},
        {"created_at": "<script>"},
        {"created_at": "x" * 10_000},
        {"program": ["grpolab"]},
        {"format": "1"},
        {"database": 7},
    ],
    ids=str,
)
def test_a_manifest_with_values_of_other_types_is_refused(installation, backup, change):
    manifest = json.loads((backup / MANIFEST).read_text())
    (backup / MANIFEST).write_text(json.dumps(manifest | change))
    assert_refused(installation, backup, "cannot be read|has format")


@pytest.mark.parametrize("content", ["[]", "null", "1", "[" * 100_000, '{"a":1,"a":2}', "\ud800", "NaN", " "])
def test_a_manifest_that_is_not_a_document_is_refused(installation, backup, content):
    (backup / MANIFEST).write_bytes(content.encode("utf-8", "surrogatepass"))
    assert_refused(installation, backup, "cannot be read")


def test_an_endless_manifest_is_not_read_to_its_end(installation, backup, monkeypatch):
    monkeypatch.setattr("backend.service.backup.contents.MAX_MANIFEST_BYTES", 100)
    with pytest.raises(BadBackup, match="larger than 100 bytes"):
        read_manifest(backup)


@pytest.mark.parametrize(
    "change",
    [
        lambda tables: tables.update({"pg_authid": {"columns": ["rolname"], "rows": 1}}),
        lambda tables: tables["run"]["columns"].append("evil"),
        lambda tables: tables.update({'run"; DROP TABLE run; --': {"columns": [], "rows": 0}}),
        lambda tables: tables["run"].update(rows=10_000_000),
        lambda tables: tables["run"].update(rows=0),
    ],
)
def test_tables_that_differ_from_the_manifest_are_refused(installation, backup, change):
    manifest = json.loads((backup / MANIFEST).read_text())
    change(manifest["tables"])
    (backup / MANIFEST).write_text(json.dumps(manifest))
    assert_refused(installation, backup, "does not know|rows|is incomplete")


def spoil(backup, *statements):
    """Change the SQLite database of a backup."""
    with closing(sqlite3.connect(backup / DATABASE)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.execute("PRAGMA journal_mode=DELETE")
    add_file(backup, DATABASE, (backup / DATABASE).read_bytes())


@pytest.fixture
def sqlite_only(database):
    if database.engine.dialect.name != "sqlite":
        pytest.skip("SQLite's file")


@pytest.fixture
def postgres_only(database):
    if database.engine.dialect.name != "postgresql":
        pytest.skip("Postgres's tables")


REWRITE_SCHEMA = "UPDATE sqlite_master SET sql = {} WHERE name = 'worker'"


@pytest.mark.parametrize(
    ("statements", "phrase"),
    first_in_gate(
        6,
        [
            (["CREATE TRIGGER evil AFTER DELETE ON worker BEGIN DELETE FROM run; END"], "trigger evil"),
            (["CREATE VIEW evil AS SELECT 1"], "view evil"),
            (
                ["ALTER TABLE run RENAME TO real", "CREATE VIEW run AS SELECT * FROM real"],
                "a different schema",
            ),
            (["CREATE VIRTUAL TABLE evil USING fts5(a)"], "a different schema"),
            (["CREATE TABLE evil(a)"], "table evil"),
            (["CREATE INDEX evil ON run(abs(seed))"], "index evil"),
            (["DROP INDEX ix_run_claim"], "index ix_run_claim"),
            (["ALTER TABLE run ADD COLUMN evil AS (abs(seed))"], "table run"),
            (
                [
                    "PRAGMA writable_schema=ON",
                    REWRITE_SCHEMA.format("sql || ' '"),
                    REWRITE_SCHEMA.format("'CREATE TABLE worker(id)'"),
                ],
                "cannot be read|a different schema|damaged",
            ),
            (
                ["PRAGMA writable_schema=ON", "UPDATE sqlite_master SET rootpage = 2"],
                "damaged|cannot be read",
            ),
            (
                ["PRAGMA foreign_keys=OFF", "UPDATE checkpoint SET run_id = 'nobody'"],
                "refers to a missing row",
            ),
            (["UPDATE run SET steps = 'evil'"], "a row of run .* of another type"),
            (["UPDATE run SET config = '{'"], "a row of run .* has a config that is not JSON"),
            (["UPDATE run SET tags = '{NaN'"], "a row of run .* has a tags that is not JSON"),
            (
                ["UPDATE run SET summary = '" + "[" * 100_000 + "NaN'"],
                "a row of run .* has a summary that is",
            ),
            (
                ["UPDATE run SET tags = '[" + "1" * 5_000 + "]'"],
                "a row of run .* has a tags that is not JSON",
            ),
            (["UPDATE run SET tags = '{}' || char(0)"], "a row of run .* has a tags that is not JSON"),
            (
                ["UPDATE run SET config = '" + "[" * 300 + "]" * 300 + "'"],
                "a row of run .* has a config that is nested deeper than 200 levels",
            ),
            (["UPDATE run SET parent_run = id, fork_step = 1"], "a run that comes from itself"),
            (["UPDATE metric SET value = x'00'"], "a row of metric .* of another type"),
            (["UPDATE checkpoint SET path = '../../../outside'"], "outside of its run's directory"),
            (["UPDATE checkpoint SET path = '/etc'"], "outside of its run's directory"),
            (
                [
                    "PRAGMA foreign_keys=OFF",
                    "UPDATE checkpoint SET run_id = '../..'",
                    "UPDATE run SET id = '../..'",
                ],
                "an invalid id",
            ),
            (["UPDATE alembic_version SET version_num = '0001'"], "has schema '0001'"),
            (["DELETE FROM metric"], "metric has 0 rows"),
        ],
    ),
    ids=lambda value: value[-1][:60] if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("sqlite_only")
def test_a_sqlite_database_that_holds_more_than_rows_is_refused(installation, backup, statements, phrase):
    spoil(backup, *statements)
    assert_refused(installation, backup, phrase)


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"\xff" * 5000])
@pytest.mark.usefixtures("sqlite_only")
def test_a_file_that_is_not_a_sqlite_database_is_refused(installation, backup, content):
    add_file(backup, DATABASE, content)
    assert_refused(installation, backup, "cannot be read|a different schema")


def test_runs_that_are_forks_of_each_other_are_refused(installation, database, tmp_path):
    with database.sessions.begin() as session:
        runs = [make_run(session, status="finished", name=name).id for name in "abc"]
        for run, parent in zip(runs, [*runs[1:], runs[0]], strict=True):
            session.execute(update(Run).where(Run.id == run).values(parent_run=parent, fork_step=1))
        assert [segment.run for segment in load_lineages(session, runs)[runs[0]]] == [
            runs[2],
            runs[1],
            runs[0],
        ]
    database.engine.dispose()
    save_backup(installation, tmp_path / "cycle")
    with database.sessions.begin() as session:
        session.execute(update(Run).values(parent_run=None, fork_step=None))
    database.engine.dispose()
    assert_refused(installation, tmp_path / "cycle", "a run that comes from itself")


def repack(backup, table, change):
    """Change a table of a Postgres backup."""
    path = backup / "database" / f"{table}.copy.zst"
    packed_table = change(zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes()))
    add_file(backup, f"database/{table}.copy.zst", packed_table)


@pytest.mark.parametrize(
    ("table", "change", "phrase"),
    [
        ("run", lambda rows: zstandard.compress(rows.replace(b"\tgrpo\t", b"\t")), "Postgres rejects"),
        ("run", lambda rows: zstandard.compress(b"\xff\xfe\0" + rows), "Postgres rejects"),
        ("run", lambda rows: zstandard.compress(rows + rows), "Postgres rejects"),
        ("run", lambda _: zstandard.compress(b""), "has 0 rows|Postgres rejects"),
        ("run", lambda rows: rows, "cannot be unpacked"),
        (
            "run",
            lambda rows: zstandard.compress(rows)[:-5],
            "cannot be unpacked|has .* rows|Postgres rejects",
        ),
        (
            "checkpoint",
            lambda rows: zstandard.compress(rows.replace(b"s000003-a1", b"../../evil")),
            "outside of its run",
        ),
        ("metric", lambda _: zstandard.compress(b"\0" * 3_000_000), "Postgres rejects|unpacks to more than"),
    ],
)
@pytest.mark.usefixtures("postgres_only")
def test_malformed_rows_of_postgres_are_refused(installation, backup, monkeypatch, table, change, phrase):
    monkeypatch.setattr(tables, "MAX_UNPACKED", 1_000_000)
    repack(backup, table, change)
    assert_refused(installation, backup, phrase)


@pytest.mark.usefixtures("postgres_only")
def test_rows_of_postgres_are_never_statements(installation, backup, database):
    repack(backup, "run", lambda rows: zstandard.compress(rows + b"\\.\nDROP TABLE run;\n"))
    with suppress(BadBackup):  # some versions ignore everything after the last row
        restore_backup(installation, backup, overwrite=True)
    with database.sessions() as session:
        assert session.scalars(select(Run.name)).all() == ["done"]


def test_a_checkpoint_that_names_files_elsewhere_is_never_saved(installation, database, outside, tmp_path):
    """Otherwise a restored checkpoint would copy a file of this machine into the next backup."""
    with database.sessions() as session:
        checkpoint = session.scalars(select(Checkpoint)).one()
        manifest = installation.artifact_dir(checkpoint.run_id) / checkpoint.path / MANIFEST
    for name in (str(outside), "../../../../outside/precious"):
        manifest.write_text(json.dumps({"files": {name: {}}}))
        report = save_backup(installation, tmp_path / sha256(name.encode()).hexdigest())
        assert (len(report.missing), report.manifest.checkpoints) == (1, 0)
        assert not list((tmp_path / sha256(name.encode()).hexdigest()).rglob("precious"))


def test_sessions_are_not_part_of_a_backup(installation, database, tmp_path):
    canary = "c0ffee" * 10
    with database.sessions.begin() as session:
        session.add(BrowserSession(id=canary, role="operator", user_agent="canary", ends_at=1e12))
    save_backup(installation, tmp_path / "backup")
    database.engine.dispose()
    assert not [path for path in (tmp_path / "backup").rglob("*.*") if canary.encode() in path.read_bytes()]
    restore_backup(installation, tmp_path / "backup", overwrite=True)
    with database.sessions() as session:
        assert session.scalars(select(BrowserSession)).all() == []


def test_sessions_in_a_forged_backup_are_not_restored(installation, database, backup, sqlite_only):
    row = "('evil', 'operator', '', 1, 1, 1e12)"
    columns = "(id, role, user_agent, created_at, seen_at, ends_at)"
    spoil(backup, f"INSERT INTO browser_session {columns} VALUES {row}")  # noqa: S608
    restore_backup(installation, backup, overwrite=True)
    with database.sessions() as session:
        assert session.scalars(select(BrowserSession)).all() == []
