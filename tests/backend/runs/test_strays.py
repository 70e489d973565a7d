"""Tests of files in the runs directory that no run owns, and of files that are missing there."""

import time

import pytest
from sqlalchemy import select, update

from backend.runs import strays as strays_module
from backend.runs.strays import Strays
from backend.storage.engine import new_id
from backend.storage.models import Checkpoint, Event, Run
from tests.factories import make_run

HOUR = 3600.0


class Installation:
    """A runs directory, and a clock that the test moves."""

    def __init__(self, settings, sessions):
        self.settings, self.sessions, self.now = settings, sessions, time.time()

    def sweep(self, *, hours=0.0):
        """Advance the clock and look again, in a new process every time."""
        self.now += hours * HOUR
        for _ in Strays(self.settings, self.sessions, clock=lambda: self.now).sweep():
            pass

    def add_run(self, **fields):
        with self.sessions.begin() as session:
            return make_run(session, **{"status": "finished"} | fields).id

    def add_checkpoint(self, run_id, name, *, row=True):
        directory = self.settings.artifact_dir(run_id) / name
        directory.mkdir(parents=True)
        (directory / "manifest.json").write_text("{}")
        (directory / "model.safetensors").write_text("weights")
        if row:
            values = {"step": 3, "attempt": 1, "sha256": "", "bytes_total": 9, "manifest": {}}
            with self.sessions.begin() as session:
                session.add(Checkpoint(run_id=run_id, path=name, **values))
        return directory

    def events(self):
        with self.sessions() as session:
            query = select(Event.run_id, Event.level, Event.step, Event.message)
            return [tuple(row) for row in session.execute(query.where(Event.kind == "checkpoint"))]


@pytest.fixture
def installation(settings, sessions):
    return Installation(settings, sessions)


def test_only_files_without_an_owner_for_a_day_are_removed(installation, caplog):
    run_id = installation.add_run()
    checkpoint = installation.add_checkpoint(run_id, "s000003-a1")
    unknown_run_directory = installation.add_checkpoint(new_id(), "s000003-a1", row=False).parent
    orphan = installation.add_checkpoint(run_id, "s000006-a1", row=False)
    draft = installation.add_checkpoint(run_id, ".s000009-a1.77.draft", row=False)
    installation.sweep()
    installation.sweep(hours=23)
    assert all(path.exists() for path in (checkpoint, unknown_run_directory, orphan, draft))
    installation.sweep(hours=2)
    assert (checkpoint / "model.safetensors").exists()
    assert not any(path.exists() for path in (unknown_run_directory, orphan, draft))
    messages = [record.getMessage() for record in caplog.records if record.getMessage().startswith("removed")]
    assert messages == [
        f"removed {path}, which had belonged to no run for a day"
        for path in (draft, orphan, unknown_run_directory)
    ]
    installation.sweep(hours=25)
    assert checkpoint.exists()
    assert installation.events() == []


@pytest.mark.parametrize("status", ["queued", "running"])
def test_files_of_an_active_run_are_ignored(installation, status):
    run_id = installation.add_run(status=status)
    stray = installation.add_checkpoint(run_id, "s000006-a1", row=False)
    installation.add_checkpoint(run_id, "s000003-a1").joinpath("manifest.json").unlink()
    installation.sweep()
    installation.sweep(hours=25)
    assert stray.exists()
    assert installation.events() == []


def test_files_that_get_a_row_in_time_are_kept(installation):
    run_id = installation.add_run()
    late_checkpoint = installation.add_checkpoint(run_id, "s000006-a1", row=False)
    installation.sweep()
    values = {"step": 6, "attempt": 1, "sha256": "", "bytes_total": 9, "manifest": {}}
    with installation.sessions.begin() as session:
        session.add(Checkpoint(run_id=run_id, path=late_checkpoint.name, **values))
    installation.sweep(hours=25)
    assert late_checkpoint.exists()


def test_a_run_resumed_during_the_sweep_keeps_its_files(installation, monkeypatch):
    run_id = installation.add_run(status="stopped")
    stray = installation.add_checkpoint(run_id, "s000006-a1", row=False)
    installation.sweep()
    original_newest_change = strays_module._newest_change

    def resume_and_look(path):
        with installation.sessions.begin() as session:
            session.execute(update(Run).values(status="queued"))
        return original_newest_change(path)

    monkeypatch.setattr(strays_module, "_newest_change", resume_and_look)
    installation.sweep(hours=25)
    assert stray.exists()


def test_links_and_names_that_cannot_be_runs_of_this_database_are_ignored(installation, tmp_path):
    outside_directory = tmp_path / "outside"
    outside_directory.mkdir()
    (outside_directory / "precious").write_text("")
    older_checkpoint = installation.add_checkpoint(
        new_id(), "s000003-a1", row=False
    )  # perhaps of another database
    time.sleep(0.002)
    run_id = installation.add_run()
    installation.add_checkpoint(run_id, "s000003-a1")
    runs = installation.settings.state / "runs"
    (runs / "notes.txt").write_text("mine")
    (runs / "mine").mkdir()
    (runs / new_id()).symlink_to(outside_directory)
    (runs / run_id / "s000006-a1").symlink_to(outside_directory)
    holder = installation.add_checkpoint(new_id(), "s000003-a1", row=False)
    (holder / "link").symlink_to(outside_directory)
    installation.sweep()
    installation.sweep(hours=25)
    assert not holder.exists()
    assert (outside_directory / "precious").exists()
    assert older_checkpoint.exists()
    assert sorted(path.name for path in runs.iterdir() if not path.name.startswith("0")) == [
        "mine",
        "notes.txt",
    ]
    assert (runs / run_id / "s000006-a1").is_symlink()


def test_a_checkpoint_whose_files_are_gone_is_reported_once(installation):
    run_id = installation.add_run()
    installation.add_checkpoint(run_id, "s000003-a1")
    incomplete_checkpoint = installation.add_checkpoint(run_id, "s000006-a1")
    (incomplete_checkpoint / "manifest.json").unlink()
    installation.sweep()
    installation.sweep(hours=1)
    line = "checkpoint s000006-a1 is missing from the disk: no run can continue or start from it"
    assert installation.events() == [(run_id, "error", 3, line)]
    with installation.sessions() as session:
        assert len(session.scalars(select(Checkpoint)).all()) == 2


def test_a_missing_disk_is_not_reported_checkpoint_by_checkpoint(installation):
    run_id = installation.add_run()
    checkpoint = installation.add_checkpoint(run_id, "s000003-a1")
    checkpoint.parent.rename(installation.settings.state / "elsewhere")
    installation.sweep()
    (installation.settings.state / "runs").rmdir()
    installation.sweep()
    assert installation.events() == []
