"""Deleting runs for ever: what is refused, what goes, and that a kill is no obstacle. On both databases."""

import multiprocessing
import time

import pytest
from sqlalchemy import func, select

from backend.database import open_engine, open_sessions
from backend.models import Attempt, Base, Checkpoint, Event, Experiment, Metric, Run
from backend.runs import deletion
from backend.runs.deletion import carry_on
from backend.runs.events import add_event
from backend.runs.store import append_log
from tests.factories import make_attempt, make_experiment, make_group, make_run, write_metric
from tests.faults.audit import audit


@pytest.fixture
def full_run(database, settings):
    """Makes a run of the trash with rows in every table and files."""

    def make(name="doomed", *, steps=6, **fields):
        with database.sessions.begin() as session:
            given = {"status": "finished", "deleted_at": 1.0, "attempt": 1, "last_step": steps} | fields
            run = make_run(session, name=name, **given)
            make_attempt(session, run, 1, from_step=-1).ended_at = 2.0
            write_metric(session, run, "reward/mean", dict.fromkeys(range(1, steps + 1), 0.5))
            for step in range(1, 4):
                make_group(session, run, step=step)
                append_log(session, run.id, 1, step, "line\n")
                add_event(session, "alert", "something", run_id=run.id)
            row = {"path": "s000006-a1", "sha256": "0" * 64, "bytes_total": 2, "manifest": {}}
            session.add(Checkpoint(run_id=run.id, step=6, attempt=1, **row))
        folder = settings.artifacts_of(run.id) / "s000006-a1" / "trainer"
        folder.mkdir(parents=True)
        (folder / "state.json").write_text("{}")
        return run

    return make


def left(database, run_id):
    """Tables that still hold something of a run."""
    with database.sessions() as session:
        return {
            table.name
            for table in Base.metadata.sorted_tables
            if "run_id" in table.c and table.name != "worker"
            if session.scalar(select(func.count()).select_from(table).where(table.c.run_id == run_id))
        }


def delete(client, run, **params):
    return client.delete(f"/api/v1/runs/{run.id}", params=params)


def test_a_run_that_is_deleted_for_ever_is_gone_at_once_and_leaves_nothing(
    client, database, settings, full_run
):
    doomed, other = full_run(), full_run("other", deleted_at=None)
    assert delete(client, doomed, forever=True).status_code == 202
    assert client.get(f"/api/v1/runs/{doomed.id}").status_code == 404
    assert client.get("/api/v1/runs", params={"deleted": True}).json()["items"] == []
    for verb in ("restore", "resume", "retry", "stop", "clone"):
        assert client.post(f"/api/v1/runs/{doomed.id}/{verb}").status_code == 404
    assert left(database, doomed.id) == left(database, other.id) != set()
    assert carry_on(database.sessions, settings, seconds=60) == 1
    assert left(database, doomed.id) == set()
    assert "metric" in left(database, other.id)
    assert [path.name for path in (settings.state / "runs").iterdir()] == [other.id]
    with database.sessions() as session:
        assert session.scalars(select(Run.id)).all() == [other.id]
        told = session.scalars(select(Event.message).where(Event.run_id.is_(None))).all()
    assert told == ["doomed was deleted for ever"]
    damaged = {f"{other.id}/s000006-a1"}
    assert audit(database.sessions, settings.state, damaged=damaged) == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"deleted_at": None}, "doomed is not in the trash: delete it first"),
        ({"status": "running"}, "doomed still trains: it is deleted for ever once it has stopped"),
    ],
)
def test_what_trains_or_is_not_in_the_trash_stays(client, full_run, fields, reason):
    answer = delete(client, full_run(**fields), forever=True)
    assert (answer.status_code, answer.json()["detail"]) == (409, reason)


def test_a_run_that_others_begin_with_goes_after_them(client, database, settings, full_run):
    parent = full_run("parent")
    fork = full_run("fork", parent_run=parent.id, fork_step=6, deleted_at=None)
    clone = full_run("clone", parent_run=parent.id, deleted_at=None)
    answer = delete(client, parent, forever=True)
    assert answer.status_code == 409
    assert answer.json()["detail"] == "fork begins with a checkpoint of parent: delete it first"
    emptied = client.delete("/api/v1/runs", params={"forever": True}).json()
    assert emptied["deleted"] == []
    assert [item["reason"] for item in emptied["kept"]] == [answer.json()["detail"]]
    delete(client, fork)
    emptied = client.delete("/api/v1/runs", params={"forever": True}).json()
    assert emptied == {"deleted": sorted([parent.id, fork.id]), "kept": []}
    assert carry_on(database.sessions, settings, seconds=60) == 1
    assert carry_on(database.sessions, settings, seconds=60) == 1
    with database.sessions() as session:
        assert session.execute(select(Run.id, Run.parent_run)).all() == [(clone.id, None)]


def test_the_trash_is_emptied_only_when_it_is_said_to_be_for_ever(client, full_run):
    run = full_run()
    assert client.delete("/api/v1/runs").status_code == 422
    assert client.delete("/api/v1/runs", params={"forever": False}).status_code == 422
    assert client.get(f"/api/v1/runs/{run.id}").status_code == 200


def test_an_experiment_goes_with_its_last_run(client, database, settings, full_run):
    with database.sessions.begin() as session:
        experiment = make_experiment(session).id
    runs = [full_run(f"run {n}", experiment_id=experiment) for n in range(2)]
    for run in runs:
        with database.sessions() as session:
            assert session.get(Experiment, experiment) is not None
        delete(client, run, forever=True)
        carry_on(database.sessions, settings, seconds=60)
    with database.sessions() as session:
        assert session.get(Experiment, experiment) is None


def test_a_deletion_that_stops_after_any_batch_goes_on_there(
    client, database, settings, full_run, monkeypatch
):
    small = tuple((table, 2) for table, _ in deletion.BATCHES)
    monkeypatch.setattr(deletion, "BATCHES", small)
    run = full_run()
    delete(client, run, forever=True)
    steps = 0
    while carry_on(database.sessions, settings, seconds=0) == 0:
        steps += 1
        assert steps < 50
    assert steps >= 3 + 2 + 2 + 2  # metrics, groups, output, events
    assert left(database, run.id) == set()
    assert not settings.artifacts_of(run.id).exists()


def test_files_that_cannot_be_removed_keep_the_run_until_they_can(
    client, database, settings, full_run, monkeypatch
):
    stuck, free = full_run("stuck"), full_run("free")
    real = deletion.remove_files

    def refuse(directory):
        if directory.name == stuck.id:
            raise PermissionError("read-only file system")
        real(directory)

    monkeypatch.setattr(deletion, "remove_files", refuse)
    client.delete("/api/v1/runs", params={"forever": True})
    with pytest.raises(PermissionError):
        carry_on(database.sessions, settings, seconds=60)
    with database.sessions() as session:
        assert session.scalars(select(Run.id)).all() == [stuck.id]
    assert not settings.artifacts_of(free.id).exists()
    monkeypatch.undo()
    assert carry_on(database.sessions, settings, seconds=60) == 1


def delete_slowly(url, settings):
    """In a process of its own: a batch of two rows every few milliseconds."""
    deletion.BATCHES = tuple((table, 2) for table, _ in deletion.BATCHES)
    sessions = open_sessions(open_engine(url))
    while True:
        carry_on(sessions, settings, seconds=0)
        time.sleep(0.002)


def test_a_process_that_is_killed_while_it_deletes_leaves_what_the_next_one_removes(
    client, database, settings, full_run
):
    run, other = full_run(steps=400), full_run("other", deleted_at=None)
    delete(client, run, forever=True)
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=delete_slowly, args=(database.url, settings))
    process.start()
    deadline = time.monotonic() + 60
    while (rows := count(database, run.id)) > 380:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.kill()
    process.join()
    assert 0 < rows < 400, "the test was too slow to kill it in the middle"
    assert carry_on(database.sessions, settings, seconds=60) == 1
    assert left(database, run.id) == set()
    with database.sessions() as session:
        assert session.scalars(select(Attempt.run_id)).all() == [other.id]


def count(database, run_id):
    with database.sessions() as session:
        return session.scalar(select(func.count()).select_from(Metric).where(Metric.run_id == run_id))
