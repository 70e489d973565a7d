"""Tests of permanent deletion of runs, including refusals and kills, on both databases."""

import os
import signal

import pytest
from sqlalchemy import event, func, select

from backend.runs import deletion
from backend.runs.deletion import continue_deletions
from backend.runs.events import add_event
from backend.runs.store import append_log
from backend.storage.engine import open_engine, open_sessions
from backend.storage.models import Attempt, Base, Checkpoint, Event, Experiment, Run
from tests.factories import make_attempt, make_experiment, make_group, make_run, write_metric
from tests.faults.audit import audit

pytestmark = pytest.mark.both_databases


@pytest.fixture
def make_full_run(database, settings):
    """A function that makes a run in the trash with files and with rows in every table."""

    def make(name="doomed", *, steps=6, **fields):
        with database.sessions.begin() as session:
            columns = {"status": "finished", "deleted_at": 1.0, "attempt": 1, "last_step": steps} | fields
            run = make_run(session, name=name, **columns)
            make_attempt(session, run, 1, from_step=-1).ended_at = 2.0
            write_metric(session, run, "reward/mean", dict.fromkeys(range(1, steps + 1), 0.5))
            for step in range(1, 4):
                make_group(session, run, step=step)
                append_log(session, run.id, 1, step, "line\n")
                add_event(session, "alert", "something", run_id=run.id)
            row = {"path": "s000006-a1", "sha256": "0" * 64, "bytes_total": 2, "manifest": {}}
            session.add(Checkpoint(run_id=run.id, step=6, attempt=1, **row))
        folder = settings.artifact_dir(run.id) / "s000006-a1" / "trainer"
        folder.mkdir(parents=True)
        (folder / "state.json").write_text("{}")
        return run

    return make


def remaining_tables(database, run_id):
    """Return the tables that still hold rows of a run."""
    with database.sessions() as session:
        return {
            table.name
            for table in Base.metadata.sorted_tables
            if "run_id" in table.c and table.name != "worker"
            if session.scalar(select(func.count()).select_from(table).where(table.c.run_id == run_id))
        }


def delete(client, run, **params):
    return client.delete(f"/api/v1/runs/{run.id}", params=params)


def test_a_permanently_deleted_run_is_gone_immediately_and_leaves_nothing(
    client, database, settings, make_full_run
):
    doomed_run, other_run = make_full_run(), make_full_run("other", deleted_at=None)
    assert delete(client, doomed_run, forever=True).status_code == 202
    assert client.get(f"/api/v1/runs/{doomed_run.id}").status_code == 404
    assert client.get("/api/v1/runs", params={"deleted": True}).json()["items"] == []
    for verb in ("restore", "resume", "retry", "stop", "clone"):
        assert client.post(f"/api/v1/runs/{doomed_run.id}/{verb}").status_code == 404
    assert remaining_tables(database, doomed_run.id) == remaining_tables(database, other_run.id) != set()
    assert continue_deletions(database.sessions, settings, seconds=60) == 1
    assert remaining_tables(database, doomed_run.id) == set()
    assert "metric" in remaining_tables(database, other_run.id)
    assert [path.name for path in (settings.state / "runs").iterdir()] == [other_run.id]
    with database.sessions() as session:
        assert session.scalars(select(Run.id)).all() == [other_run.id]
        messages = session.scalars(select(Event.message).where(Event.run_id.is_(None))).all()
    assert messages == ["doomed was deleted permanently"]
    damaged_checkpoints = {f"{other_run.id}/s000006-a1"}
    assert audit(database.sessions, settings.state, damaged=damaged_checkpoints) == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"deleted_at": None}, "doomed is not in the trash: delete it first"),
        ({"status": "running"}, "doomed still trains: it is deleted permanently once it has stopped"),
    ],
)
def test_a_run_that_trains_or_is_not_in_the_trash_is_not_deleted(client, make_full_run, fields, reason):
    response = delete(client, make_full_run(**fields), forever=True)
    assert (response.status_code, response.json()["detail"]) == (409, reason)


def test_a_run_with_forks_is_deleted_after_them(client, database, settings, make_full_run):
    parent = make_full_run("parent")
    fork = make_full_run("fork", parent_run=parent.id, fork_step=6, deleted_at=None)
    clone = make_full_run("clone", parent_run=parent.id, deleted_at=None)
    response = delete(client, parent, forever=True)
    assert response.status_code == 409
    assert response.json()["detail"] == "fork begins with a checkpoint of parent: delete it first"
    emptied = client.delete("/api/v1/runs", params={"forever": True}).json()
    assert emptied["deleted"] == []
    assert [item["reason"] for item in emptied["kept"]] == [response.json()["detail"]]
    delete(client, fork)
    emptied = client.delete("/api/v1/runs", params={"forever": True}).json()
    assert emptied == {"deleted": sorted([parent.id, fork.id]), "kept": []}
    assert continue_deletions(database.sessions, settings, seconds=60) == 1
    assert continue_deletions(database.sessions, settings, seconds=60) == 1
    with database.sessions() as session:
        assert session.execute(select(Run.id, Run.parent_run)).all() == [(clone.id, None)]


def test_the_trash_is_emptied_only_if_permanence_is_confirmed(client, make_full_run):
    run = make_full_run()
    assert client.delete("/api/v1/runs").status_code == 422
    assert client.delete("/api/v1/runs", params={"forever": False}).status_code == 422
    assert client.get(f"/api/v1/runs/{run.id}").status_code == 200


def test_an_experiment_is_deleted_with_its_last_run(client, database, settings, make_full_run):
    with database.sessions.begin() as session:
        experiment = make_experiment(session).id
    runs = [make_full_run(f"run {n}", experiment_id=experiment) for n in range(2)]
    for run in runs:
        with database.sessions() as session:
            assert session.get(Experiment, experiment) is not None
        delete(client, run, forever=True)
        continue_deletions(database.sessions, settings, seconds=60)
    with database.sessions() as session:
        assert session.get(Experiment, experiment) is None


def test_a_deletion_that_stops_after_any_batch_continues_there(
    client, database, settings, make_full_run, monkeypatch
):
    small_batches = tuple((table, 2) for table, _ in deletion.BATCH_SIZE_BY_TABLE)
    monkeypatch.setattr(deletion, "BATCH_SIZE_BY_TABLE", small_batches)
    run = make_full_run()
    delete(client, run, forever=True)
    steps = 0
    while continue_deletions(database.sessions, settings, seconds=0) == 0:
        steps += 1
        assert steps < 50
    assert steps >= 3 + 2 + 2 + 2  # metrics, groups, output, events
    assert remaining_tables(database, run.id) == set()
    assert not settings.artifact_dir(run.id).exists()


def test_files_that_cannot_be_removed_keep_the_run_until_they_can(
    client, database, settings, make_full_run, monkeypatch
):
    stuck_run, removable_run = make_full_run("stuck"), make_full_run("free")
    real_remove_files = deletion.remove_files

    def refuse(directory):
        if directory.name == stuck_run.id:
            raise PermissionError("read-only file system")
        real_remove_files(directory)

    monkeypatch.setattr(deletion, "remove_files", refuse)
    client.delete("/api/v1/runs", params={"forever": True})
    with pytest.raises(PermissionError):
        continue_deletions(database.sessions, settings, seconds=60)
    with database.sessions() as session:
        assert session.scalars(select(Run.id)).all() == [stuck_run.id]
    assert not settings.artifact_dir(removable_run.id).exists()
    monkeypatch.undo()
    assert continue_deletions(database.sessions, settings, seconds=60) == 1


def die(*_args, **_kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def die_before_a_batch_is_committed(engine, _monkeypatch):
    deletes = []

    @event.listens_for(engine, "after_cursor_execute")
    def executed(_connection, _cursor, statement, *_rest):
        deletes.extend([statement] if statement.startswith("DELETE FROM metric") else [])
        if len(deletes) == 3:
            die()


def die_among_the_files(_engine, monkeypatch):
    def remove_one(directory):
        next(directory.rglob("state.json")).unlink()
        die()

    monkeypatch.setattr(deletion, "remove_files", remove_one)


def die_before_the_last_row_is_gone(_engine, monkeypatch):
    monkeypatch.setattr(deletion, "add_event", die)


@pytest.mark.parametrize(
    "plan", [die_before_a_batch_is_committed, die_among_the_files, die_before_the_last_row_is_gone]
)
def test_the_next_process_finishes_the_deletion_of_a_killed_one(
    client, database, settings, make_full_run, monkeypatch, plan
):
    run, other_run = make_full_run(steps=40), make_full_run("other", deleted_at=None)
    delete(client, run, forever=True)
    if (child := os.fork()) == 0:
        try:
            monkeypatch.setattr(
                deletion,
                "BATCH_SIZE_BY_TABLE",
                tuple((table, 10) for table, _ in deletion.BATCH_SIZE_BY_TABLE),
            )
            engine = open_engine(database.url)
            plan(engine, monkeypatch)
            continue_deletions(open_sessions(engine), settings, seconds=60)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with database.sessions() as session:
        assert session.get(Run, run.id) is not None
    assert continue_deletions(database.sessions, settings, seconds=60) == 1
    assert remaining_tables(database, run.id) == set()
    assert not settings.artifact_dir(run.id).exists()
    with database.sessions() as session:
        assert session.scalars(select(Attempt.run_id)).all() == [other_run.id]
