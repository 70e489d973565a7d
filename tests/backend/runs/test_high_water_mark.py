"""Tests of a restored database that is older than its state directory: detection, report and remedies."""

import pytest
from sqlalchemy import delete, select

from backend.runs.events import add_event
from backend.runs.high_water_mark import find_older, mark_file, raise_mark, read_mark, report_if_older
from backend.runs.strays import Strays
from backend.service.backup.restore import restore_backup
from backend.service.backup.save import save_backup
from backend.service.doctor.services import age
from backend.service.maintenance.reconciler import Reconciler
from backend.storage.models import Event
from tests.api_client import client_of_service
from tests.factories import make_checkpoint, make_run


@pytest.fixture
def database_settings(settings, database):
    return settings.model_copy(update={"database_url": database.url})


def add_events(database, number):
    with database.sessions.begin() as session:
        for _ in range(number):
            add_event(session, "lifecycle", "something happened")


def simulate_rollback(database_settings, database, events):
    """Raise the mark as if the database had held this many more events."""
    with database.sessions() as session:
        newest_event = max(session.scalars(select(Event.id)), default=0)
        raise_mark(database_settings, session)
    mark = read_mark(database_settings)
    text = (
        mark_file(database_settings)
        .read_text()
        .replace(f'"event": {mark.event}', f'"event": {newest_event + events}')
    )
    mark_file(database_settings).write_text(text)


def test_a_database_as_new_as_its_mark_is_not_older(database_settings, database):
    add_events(database, 3)
    with database.sessions() as session:
        assert find_older(database_settings, session) is None
        raise_mark(database_settings, session)
        assert find_older(database_settings, session) is None
    add_events(database, 2)
    with database.sessions() as session:
        assert find_older(database_settings, session) is None


def test_events_deleted_with_their_run_do_not_make_it_older(database_settings, database):
    add_events(database, 3)
    with database.sessions.begin() as session:
        raise_mark(database_settings, session)
        session.execute(delete(Event))
    with database.sessions() as session:
        assert find_older(database_settings, session) is None


def test_lost_events_are_reported_once_in_history_and_log_and_on_every_page(
    database_settings, database, caplog
):
    add_events(database, 3)
    simulate_rollback(database_settings, database, 20)
    with client_of_service(database_settings, database.url) as client, client:
        history = client.get("/api/v1/status").json()["history"]
        assert history["state"] == "older"
        assert "20 or more of its newest events are missing" in history["detail"]
    assert "the database is older than this state directory" in caplog.text
    with database.sessions() as session:
        (line,) = session.scalars(select(Event).where(Event.kind == "database"))
        assert line.level == "error"
    with client_of_service(database_settings, database.url) as client, client:
        assert client.get("/api/v1/status").json()["history"]["state"] == "ok"


def test_checkpoints_beyond_the_last_step_are_proof_and_are_named(database_settings, database):
    with database.sessions.begin() as session:
        run = make_run(session, last_step=20)
        make_checkpoint(session, run, database_settings.state, step=20)
        checkpoint_ahead = make_checkpoint(session, run, database_settings.state, step=30)
        session.delete(checkpoint_ahead)
    with database.sessions() as session:
        older_report = find_older(database_settings, session)
        assert older_report.ahead == [f"{run.id}/s000030-a1"]
        assert "a run that is resumed or retried uses its own again" in older_report.sentence
        assert age(database_settings, session).level == "warn"


def test_the_reconciler_raises_the_mark(database_settings, database):
    add_events(database, 3)
    Reconciler(database_settings, database.sessions).run_once()
    assert read_mark(database_settings).event >= 3


def test_after_a_restore_the_database_may_be_older(database_settings, database, tmp_path):
    add_events(database, 3)
    save_backup(database_settings, tmp_path / "backup")
    add_events(database, 50)
    with database.sessions() as session:
        raise_mark(database_settings, session)
    database.sessions.kw["bind"].dispose()
    restore_backup(database_settings, tmp_path / "backup", overwrite=True)
    with database.sessions() as session:
        assert find_older(database_settings, session) is None


def test_files_of_runs_that_the_database_lost_are_not_removed(database_settings, database):
    add_events(database, 3)
    with database.sessions.begin() as session:
        make_run(session)
        lost_run = make_run(session)
        make_checkpoint(session, lost_run, database_settings.state, step=20)
        directory = database_settings.artifact_dir(lost_run.id)
        session.rollback()
    with database.sessions.begin() as session:
        make_run(session, id="0" * 26)
    simulate_rollback(database_settings, database, 20)
    with database.sessions.begin() as session:
        report_if_older(database_settings, session)
    for days in (0, 2, 4):
        clock = lambda days=days: directory.stat().st_mtime + days * 86400  # noqa: E731
        list(Strays(database_settings, database.sessions, clock=clock).sweep())
    assert directory.exists()
