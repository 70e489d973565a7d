"""Checkpoints that are copied to the artifact store: a run goes on where nothing but the store is left."""

import shutil

import pytest
from sqlalchemy import select

from backend.artifacts.store import ArtifactFault, ArtifactStore, artifact_store
from backend.config.merge import resolve
from backend.db.models import Checkpoint, Event, Run
from backend.runs import deletion
from tests.worker.training.test_trainer import (  # noqa: F401 - fixtures
    SMALL,
    queued,
    series,
    sessions,
    straight,
    train,
)
from worker.checkpoints import uploads
from worker.outcome import Outcome


@pytest.fixture
def settings(request, settings, tmp_path):
    in_s3 = getattr(request, "param", "file") == "s3"
    url = request.getfixturevalue("s3") if in_s3 else f"file://{tmp_path}/share/lab"
    return settings.model_copy(update={"artifacts_url": url})


IN_BOTH = pytest.mark.parametrize("settings", ["s3", "file"], indirect=True)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(uploads, "PAUSES", (0.0,))


@pytest.fixture
def store(settings):
    return artifact_store(settings)


def names(sessions, run_id):  # noqa: F811 - fixture
    with sessions() as session:
        return set(session.scalars(select(Checkpoint.path).where(Checkpoint.run_id == run_id)))


def messages(sessions, run_id):  # noqa: F811 - fixture
    with sessions() as session:
        return list(session.scalars(select(Event.message).where(Event.run_id == run_id)))


def leave_machine(settings):
    """All that the next attempt finds is the database and the store."""
    shutil.rmtree(settings.state / "runs")


@IN_BOTH
def test_the_store_has_what_retention_keeps(sessions, queued, train, settings, store):  # noqa: F811
    config = resolve(SMALL | {"steps": 6, "checkpointing": {"every": 1, "keep": 2}})
    run_id = queued(config)
    assert train(run_id, config) == Outcome("finished")
    kept = names(sessions, run_id)
    assert {"s000005-a1", "s000006-a1"} <= kept
    assert store.listing(run_id) == dict.fromkeys(kept, True)
    assert {path.name for path in settings.artifacts_of(run_id).iterdir()} == kept


@IN_BOTH
def test_another_machine_continues_from_the_store(
    sessions,  # noqa: F811 - fixtures
    queued,  # noqa: F811
    train,  # noqa: F811
    settings,
    straight,  # noqa: F811
):
    config = resolve(SMALL)
    run_id = queued(config)
    train(run_id, config, stop_after=2)
    leave_machine(settings)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight
    assert any("continued from step 2" in line for line in messages(sessions, run_id))


def test_a_machine_that_dies_during_an_upload_loses_only_what_came_after_the_copy(
    sessions,  # noqa: F811 - fixtures
    queued,  # noqa: F811
    train,  # noqa: F811
    settings,
    store,
    straight,  # noqa: F811
):
    config = resolve(SMALL)
    run_id = queued(config)
    train(run_id, config, stop_after=3)
    assert set(store.listing(run_id)) == {"s000002-a1", "s000003-a1"}
    store.remove_checkpoint(run_id, "s000003-a1")  # as if it had never come to its end
    leave_machine(settings)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight
    assert any("refused" in line and "s000003-a1" in line for line in messages(sessions, run_id))


def test_a_database_that_knows_less_than_the_store_adopts_what_is_there(
    sessions,  # noqa: F811 - fixtures
    queued,  # noqa: F811
    train,  # noqa: F811
    settings,
    straight,  # noqa: F811
):
    config = resolve(SMALL)
    run_id = queued(config)
    train(run_id, config, stop_after=2)
    with sessions.begin() as session:
        session.delete(session.scalars(select(Checkpoint)).one())
    leave_machine(settings)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight
    assert any("adopted checkpoint s000002-a1" in line for line in messages(sessions, run_id))


def test_a_damaged_checkpoint_is_replaced_by_its_copy(
    sessions,  # noqa: F811 - fixtures
    queued,  # noqa: F811
    train,  # noqa: F811
    settings,
    straight,  # noqa: F811
):
    config = resolve(SMALL)
    run_id = queued(config)
    train(run_id, config, stop_after=2)
    weights = settings.artifacts_of(run_id) / "s000002-a1" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight
    assert not any("refused" in line for line in messages(sessions, run_id))


def test_a_copy_that_somebody_changed_is_refused(sessions, queued, train, settings, store, tmp_path):  # noqa: F811
    config = resolve(SMALL)
    run_id = queued(config)
    train(run_id, config, stop_after=2)
    evil = tmp_path / "evil" / "runs" / run_id / "s000002-a1"
    shutil.copytree(settings.artifacts_of(run_id) / "s000002-a1", evil)
    manifest = evil / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    ArtifactStore(settings.artifacts_url, tmp_path / "evil").upload(evil)
    leave_machine(settings)
    with pytest.raises(Exception, match="none of the run's 1 checkpoints is whole"):
        train(run_id, config)


def test_a_store_that_goes_away_keeps_nobody_from_training(
    sessions,  # noqa: F811 - fixtures
    queued,  # noqa: F811
    train,  # noqa: F811
    settings,
    store,
    monkeypatch,
):
    config = resolve(SMALL | {"steps": 5, "checkpointing": {"every": 1, "keep": 1}})
    run_id = queued(config)
    upload = ArtifactStore.upload

    def fail_behind_step_2(self, directory):
        if directory.name > "s000002":
            raise ArtifactFault("artifact store: away")
        upload(self, directory)

    monkeypatch.setattr(ArtifactStore, "upload", fail_behind_step_2)
    assert train(run_id, config) == Outcome("finished")
    told = messages(sessions, run_id)
    assert sum("a checkpoint is on this machine only: artifact store: away" in line for line in told) == 1
    assert any(f"copy-checkpoints {run_id}" in line for line in told)
    kept = names(sessions, run_id)
    assert "s000005-a1" in kept
    copied = {name for name, is_complete in store.listing(run_id).items() if is_complete}
    assert copied & kept, "the newest copy stays until there is a newer one"
    assert all((settings.artifacts_of(run_id) / name).is_dir() for name in kept)


def test_a_store_that_comes_back_gets_what_is_missing(
    sessions,  # noqa: F811 - fixtures
    queued,  # noqa: F811
    train,  # noqa: F811
    settings,
    store,
    monkeypatch,
):
    config = resolve(SMALL | {"checkpointing": {"every": 1, "keep": 1}})
    run_id = queued(config)
    upload = ArtifactStore.upload

    tried = []

    def fail_twice(self, directory):
        tried.append(directory.name)
        if len(tried) <= 2:
            raise ArtifactFault("artifact store: away")
        upload(self, directory)

    monkeypatch.setattr(ArtifactStore, "upload", fail_twice)
    assert train(run_id, config) == Outcome("finished")
    assert "checkpoints are copied to the artifact store again" in messages(sessions, run_id)
    assert store.listing(run_id) == dict.fromkeys(names(sessions, run_id), True)


def test_a_store_that_cannot_be_reached_stops_a_run_before_it_begins(
    sessions,  # noqa: F811 - fixtures
    queued,  # noqa: F811
    train,  # noqa: F811
    monkeypatch,
):
    config = resolve(SMALL)
    run_id = queued(config)

    def fail(_):
        raise ArtifactFault("artifact store: away")

    monkeypatch.setattr(ArtifactStore, "try_out", fail)
    with pytest.raises(ArtifactFault):
        train(run_id, config)
    assert names(sessions, run_id) == set()


def test_a_fork_on_another_machine_fetches_its_origin(sessions, queued, train, settings):  # noqa: F811
    config = resolve(SMALL)
    parent = queued(config)
    train(parent, config)
    leave_machine(settings)
    longer = resolve(SMALL | {"steps": 6})
    fork = queued(longer, parent=parent, step=2)
    assert train(fork, longer) == Outcome("finished")
    assert any("forked from step 2 of r" in line for line in messages(sessions, fork))


@IN_BOTH
def test_a_deleted_run_is_gone_from_the_store(sessions, queued, train, settings, store):  # noqa: F811
    config = resolve(SMALL)
    run_id = queued(config)
    train(run_id, config)
    with sessions.begin() as session:
        session.get_one(Run, run_id).deleted_at = 1.0
        deletion.begin_deletion(session, run_id)
    while deletion.carry_on(sessions, settings, seconds=60.0):
        pass
    assert store.listing(run_id) == {}
    assert not settings.artifacts_of(run_id).exists()


def test_a_run_whose_copies_cannot_be_removed_stays_marked(
    sessions,  # noqa: F811 - fixtures
    queued,  # noqa: F811
    train,  # noqa: F811
    settings,
    store,
    monkeypatch,
):
    config = resolve(SMALL)
    run_id = queued(config)
    train(run_id, config)
    with sessions.begin() as session:
        session.get_one(Run, run_id).deleted_at = 1.0
        deletion.begin_deletion(session, run_id)

    def fail(*_):
        raise ArtifactFault("artifact store: away")

    with monkeypatch.context() as patch:
        patch.setattr(ArtifactStore, "remove_run", fail)
        with pytest.raises(ArtifactFault):
            deletion.carry_on(sessions, settings, seconds=60.0)
    with sessions() as session:
        assert session.get(Run, run_id) is not None
    assert deletion.carry_on(sessions, settings, seconds=60.0) == 1
    assert store.listing(run_id) == {}
