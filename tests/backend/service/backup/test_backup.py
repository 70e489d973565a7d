"""Tests of backup and restore, which are complete or absent on both databases after any interruption."""

import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import select, text

from backend.base.errors import Conflict
from backend.runs import lifecycle
from backend.service.backup import save
from backend.service.backup.contents import MANIFEST, read_manifest, verify
from backend.service.backup.files import BadBackup
from backend.service.backup.restore import restore_backup
from backend.service.backup.save import save_backup
from backend.service.backup.tables import ordered_tables
from backend.service.process.instance_lock import hold_instance
from backend.service.process.preflight import CannotStart, check_database
from backend.storage.models import Checkpoint, Event, Run, Worker
from tests.factories import make_run, write_metric

ROOT = Path(__file__).parents[4]


@pytest.fixture
def installation(settings, database):
    """An installation with a finished run, a running one, checkpoints, an upload and a token."""
    installed_settings = settings.model_copy(update={"database_url": database.url})
    installed_settings.run_dir.mkdir(parents=True)
    (installed_settings.state / "token").write_text("canary-of-the-operator")
    (installed_settings.datasets_dir / "uploads").mkdir(parents=True)
    (installed_settings.datasets_dir / "uploads" / "abc.jsonl").write_text("{}\n")
    with database.sessions.begin() as session:
        finished_run = make_run(session, status="finished", name="done")
        write_metric(session, finished_run, "loss", {1: math.nan, 2: -math.inf, 3: 0.1 + 0.2})
        plant_checkpoint(session, installed_settings, finished_run, 3)
        make_run(session, name="runs\t\\N\n'\"é")
    with database.sessions.begin() as session:
        claim = lifecycle.claim_run(session, "w", "h")
        plant_checkpoint(session, installed_settings, session.get_one(Run, claim.run_id), 7)
        session.add(Worker(id="w", host="h", pid=1, slot=0, device="cpu", seen_at=1.0, stats={}))
    return installed_settings


def plant_checkpoint(session, installation, run, step, size=2000):
    directory = installation.artifact_dir(run.id) / f"s{step:06d}-a1"
    (directory / "trainer").mkdir(parents=True)
    (directory / "model.safetensors").write_bytes(random.randbytes(size))
    (directory / "trainer" / "state.json").write_text(json.dumps({"step": step}))
    manifest = json.dumps({"files": {"model.safetensors": {}, "trainer/state.json": {}}}).encode()
    (directory / MANIFEST).write_bytes(manifest)
    session.add(
        Checkpoint(
            run_id=run.id,
            step=step,
            attempt=1,
            path=directory.name,
            sha256=sha256(manifest).hexdigest(),
            bytes_total=size,
            manifest={"files": ["model.safetensors"], "accuracy": None},
        )
    )
    return directory


def read_rows(database):
    """Return every row of every table."""
    with database.engine.connect() as connection:
        rows_by_table = {
            table.name: sorted(map(repr, connection.execute(select(table)))) for table in ordered_tables()
        }
    database.engine.dispose()
    return rows_by_table


def read_files(installation):
    return {
        path.relative_to(installation.state).as_posix(): path.read_bytes()
        for path in sorted((installation.state / "runs").rglob("*"))
        if path.is_file()
    }


def test_everything_is_restored_and_training_runs_are_queued(installation, database, tmp_path):
    rows, files = read_rows(database), read_files(installation)
    report = save_backup(installation, tmp_path / "backup")
    assert (report.missing, report.manifest.checkpoints) == ([], 2)
    assert {name: table.rows for name, table in report.manifest.tables.items()} == {
        name: len(table_rows) for name, table_rows in rows.items()
    }
    with database.sessions.begin() as session:
        make_run(session, name="after the backup")
    shutil.rmtree(installation.state / "runs")
    (installation.datasets_dir / "uploads" / "abc.jsonl").unlink()
    database.engine.dispose()

    restore_backup(installation, tmp_path / "backup", overwrite=True)
    restored_rows = read_rows(database)
    for name in ("experiment", "metric", "metric_key", "checkpoint", "rollout_group", "log_chunk"):
        assert restored_rows[name] == rows[name], name
    assert restored_rows["worker"] == []
    assert read_files(installation) == files
    assert (installation.datasets_dir / "uploads" / "abc.jsonl").read_text() == "{}\n"
    with database.sessions() as session:
        runs = {run.name: run for run in session.scalars(select(Run))}
        assert {name: run.status for name, run in runs.items()} == {
            "done": "finished",
            "runs\t\\N\n'\"é": "queued",
        }
        last = session.scalars(select(Event).order_by(Event.id.desc())).first()
        assert last.message.startswith("the installation was restored from its backup of 20")
        claim = lifecycle.claim_run(session, "w2", "h")
        assert claim.attempt == 2
    check_database(installation)


def test_a_backup_holds_no_token_and_no_transient_state(installation, tmp_path):
    (installation.state / "logs").mkdir()
    (installation.state / "logs" / "service.log").write_text("canary-of-the-log")
    save_backup(installation, tmp_path / "backup")
    assert {path.name for path in (tmp_path / "backup").iterdir()} == {
        *(MANIFEST, "database", "runs", "uploads")
    }
    assert not [
        path for path in (tmp_path / "backup").rglob("*") if path.is_file() and b"canary" in path.read_bytes()
    ]


def test_retention_during_a_backup_breaks_nothing(installation, database, tmp_path, monkeypatch):
    """The directory vanishes after the database snapshot, so that the backup takes a later snapshot."""
    with database.sessions.begin() as session:
        run = session.scalars(select(Run).where(Run.name == "done")).one()
        doomed_directory = plant_checkpoint(session, installation, run, 9)
    original_checkpoints, result = save._checkpoints, save._take_checkpoints
    # as if retention had run after the first look
    monkeypatch.setattr(save, "_take_checkpoints", lambda *_: None)

    def retention_comes(connection):
        rows = original_checkpoints(connection)
        if doomed_directory.exists():
            shutil.rmtree(doomed_directory)
            with database.sessions.begin() as session:
                session.execute(text("DELETE FROM checkpoint WHERE step = 9"))
            monkeypatch.setattr(save, "_take_checkpoints", result)
        return rows

    monkeypatch.setattr(save, "_checkpoints", retention_comes)
    report = save_backup(installation, tmp_path / "backup")
    assert (report.missing, report.manifest.checkpoints, report.manifest.tables["checkpoint"].rows) == (
        [],
        2,
        2,
    )


def test_a_checkpoint_whose_files_are_elsewhere_is_named_and_excluded(installation, database, tmp_path):
    with database.sessions.begin() as session:
        run = session.scalars(select(Run).where(Run.name == "done")).one()
        shutil.rmtree(plant_checkpoint(session, installation, run, 9))
    report = save_backup(installation, tmp_path / "backup")
    assert report.missing == [f"{run.id}/s000009-a1"]
    database.engine.dispose()
    restore_backup(installation, tmp_path / "backup", overwrite=True)
    with database.sessions() as session:
        assert sorted(session.scalars(select(Checkpoint.step))) == [3, 7]


@pytest.mark.parametrize(
    ("harm", "phrase"),
    [
        (lambda backup: (backup / MANIFEST).unlink(), "is not a backup"),
        (lambda backup: (backup / MANIFEST).write_text("{"), "cannot be read"),
        (
            lambda backup: (backup / "uploads" / "abc.jsonl").write_text("{ \n"),
            "is damaged: uploads/abc.jsonl",
        ),
        (lambda backup: next((backup / "database").iterdir()).unlink(), "is incomplete: database/"),
        (
            lambda backup: (backup / "stranger").write_text(""),
            "contains a file that is not part of it: 'stranger'",
        ),
    ],
)
def test_an_incomplete_backup_changes_nothing(installation, database, tmp_path, harm, phrase):
    backup = tmp_path / "backup"
    save_backup(installation, backup)
    rows, files = read_rows(database), read_files(installation)
    harm(backup)
    with pytest.raises(BadBackup, match=phrase):
        restore_backup(installation, backup, overwrite=True)
    assert (read_rows(database), read_files(installation)) == (rows, files)
    check_database(installation)


def test_a_backup_of_a_newer_version_or_another_database_is_refused(installation, database, tmp_path):
    backup = tmp_path / "backup"
    save_backup(installation, backup)
    manifest = json.loads((backup / MANIFEST).read_text())
    (backup / MANIFEST).write_text(json.dumps(manifest | {"schema_revision": "9999"}))
    with pytest.raises(BadBackup, match="schema 9999, which is newer than this version knows"):
        restore_backup(installation, backup, overwrite=True)
    (backup / MANIFEST).write_text(json.dumps(manifest | {"database": "oracle"}))
    with pytest.raises(BadBackup, match="a backup of oracle, but DATABASE_URL names"):
        restore_backup(installation, backup, overwrite=True)


def test_a_running_installation_is_not_replaced(installation, database, tmp_path):
    save_backup(installation, tmp_path / "backup")
    with hold_instance(installation, "http://here"), pytest.raises(Conflict, match="already running here"):
        restore_backup(installation, tmp_path / "backup", overwrite=True)
    with database.sessions.begin() as session:
        session.add(Worker(id="alive", host="h", pid=1, slot=0, device="cpu", stats={}))
    with pytest.raises(Conflict, match="stop all workers first"):
        restore_backup(installation, tmp_path / "backup", overwrite=True)


def test_a_database_file_that_is_in_use_is_not_replaced(installation, database, tmp_path):
    if database.engine.dialect.name != "sqlite":
        pytest.skip("Postgres takes care of itself")
    save_backup(installation, tmp_path / "backup")
    with database.engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        with pytest.raises(Conflict, match="in use by another process"):
            restore_backup(installation, tmp_path / "backup", overwrite=True)
    database.engine.dispose()
    check_database(installation)
    restore_backup(installation, tmp_path / "backup", overwrite=True)


def test_a_damaged_database_is_replaced(installation, database, tmp_path):
    if database.engine.dialect.name != "sqlite":
        pytest.skip("SQLite's file")
    save_backup(installation, tmp_path / "backup")
    database.engine.dispose()
    Path(database.engine.url.database).write_bytes(b"this is no database" * 1000)
    with pytest.raises(Conflict, match="OVERWRITE=1"):
        restore_backup(installation, tmp_path / "backup")
    restore_backup(installation, tmp_path / "backup", overwrite=True)
    assert len(read_rows(database)["run"]) == 2


def start_command(installation, *argv, limit=None):
    """Start the command line in its own process, with files limited to `limit` bytes."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "STATE_DIR": str(installation.state),
        "DATABASE_URL": installation.database_url,
        "DATASETS_DIR": str(installation.datasets_dir),
    }
    if limit:  # Otherwise Python would write truncated bytecode and fail to import it later.
        environment["PYTHONDONTWRITEBYTECODE"] = "1"

    def obey():
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [sys.executable, "-m", "backend.service", *map(str, argv)],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=obey,  # noqa: PLW1509 - one thread
    )


def test_a_full_disk_leaves_nothing_and_is_reported(installation, tmp_path):
    process = start_command(installation, "backup", tmp_path / "backup", limit=1000)
    output = process.communicate()[0]
    assert process.returncode == 1, output
    assert f"no backup was written to {tmp_path / 'backup'}" in output
    assert "Traceback" not in output
    assert list(tmp_path.glob("*backup*")) == []


def test_a_killed_backup_is_never_accepted_as_a_backup(installation, database, tmp_path):
    if database.engine.dialect.name != "sqlite":
        pytest.skip("the draft and its renaming are the same")
    with database.sessions.begin() as session:
        run = session.scalars(select(Run).where(Run.name == "done")).one()
        for step in range(10, 40):
            plant_checkpoint(session, installation, run, step, size=20_000)
    rng, backup = random.Random(0), tmp_path / "backup"
    process = start_command(installation, "backup", backup)
    for _ in range(3):
        start_time = time.monotonic()
        while not any(tmp_path.iterdir()) and process.poll() is None and time.monotonic() < start_time + 60:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if backup.exists():
            verify(backup, read_manifest(backup))
            shutil.rmtree(backup)
        shutil.rmtree(tmp_path / ".backup.draft", ignore_errors=True)
        process = start_command(installation, "backup", backup)
    assert process.communicate()[0]
    assert process.returncode == 0
    verify(backup, read_manifest(backup))


@pytest.mark.nightly
def test_after_a_killed_restore_nothing_starts_until_it_is_repeated(installation, database, tmp_path):
    backup, mark = tmp_path / "backup", installation.state / "restoring"
    save_backup(installation, backup)
    database.engine.dispose()
    rng = random.Random(1)
    for _ in range(3):
        process = start_command(installation, "restore", backup, "--overwrite")
        while not mark.exists() and process.poll() is None:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if mark.exists():
            with pytest.raises(CannotStart, match="a restore was interrupted"):
                check_database(installation)
    process = start_command(installation, "restore", backup, "--overwrite")
    assert "as of" in process.communicate()[0]
    assert process.returncode == 0
    check_database(installation)
    assert len(read_rows(database)["run"]) == 2
    assert len(read_files(installation)) == 6
