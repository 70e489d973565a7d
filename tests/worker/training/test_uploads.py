"""Checkpoints that are copied to the artifact store: a run goes on where nothing but the store is left."""

import shutil
import threading
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import select

from backend.config.merge import resolve
from backend.runs import deletion
from backend.storage.artifacts.store import ArtifactFault, ArtifactStore, artifact_store
from backend.storage.models import Checkpoint, Event, Run
from tests.worker.training.test_trainer import (  # noqa: F401 - fixtures
    SMALL,
    queued,
    series,
    sessions,
    straight,
    train,
)
from worker.checkpoints import store as checkpoint_store
from worker.checkpoints import uploads
from worker.checkpoints.files import BadCheckpoint
from worker.outcome import Outcome


@pytest.fixture
def settings(request, settings, tmp_path):
    in_s3 = getattr(request, "param", "file") == "s3"
    url = request.getfixturevalue("s3") if in_s3 else f"file://{tmp_path}/share/lab"
    return settings.model_copy(update={"artifacts_url": url})


IN_BOTH = pytest.mark.parametrize(
    "settings", [pytest.param("s3", marks=pytest.mark.nightly), "file"], indirect=True
)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(uploads, "PATIENCE_SECONDS", 0.0)


@pytest.fixture
def store(settings):
    return artifact_store(settings)


@pytest.fixture
def stopped(straight, queued, train):  # noqa: F811 - fixtures; the straight run is claimed first
    """A run of SMALL whose worker was asked to stop in step 2, and its config."""
    config = resolve(SMALL)
    run_id = queued(config)
    train(run_id, config, stop_after=2)
    return run_id, config


def names(sessions, run_id):  # noqa: F811 - fixture
    with sessions() as session:
        return set(session.scalars(select(Checkpoint.path).where(Checkpoint.run_id == run_id)))


def messages(sessions, run_id):  # noqa: F811 - fixture
    with sessions() as session:
        return list(session.scalars(select(Event.message).where(Event.run_id == run_id)))


def flip_last_bit(path):
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def leave_machine(settings):
    """All that the next attempt finds is the database and the store."""
    shutil.rmtree(settings.state / "runs")


@pytest.mark.nightly
@IN_BOTH
def test_the_store_has_what_retention_keeps(sessions, queued, train, settings, store):  # noqa: F811
    config = resolve(SMALL | {"steps": 6, "checkpointing": {"every": 1, "keep": 2}})
    run_id = queued(config)
    assert train(run_id, config) == Outcome("finished")
    kept_names = names(sessions, run_id)
    assert {"s000005-a1", "s000006-a1"} <= kept_names
    assert store.listing(run_id) == dict.fromkeys(kept_names, True)
    assert {path.name for path in settings.artifacts_of(run_id).iterdir()} == kept_names


@IN_BOTH
def test_another_machine_continues_from_the_store(
    sessions,  # noqa: F811 - fixtures
    stopped,
    train,  # noqa: F811
    settings,
    straight,  # noqa: F811
):
    run_id, config = stopped
    leave_machine(settings)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight
    assert any("continued from step 2" in line for line in messages(sessions, run_id))


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_a_machine_that_dies_before_the_first_copy_begins_the_run_anew(
    sessions,  # noqa: F811 - fixtures
    stopped,
    train,  # noqa: F811
    settings,
    store,
    straight,  # noqa: F811
):
    run_id, config = stopped
    store.remove_run(run_id)
    leave_machine(settings)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight
    assert any(
        "begins anew: its checkpoints were on a machine" in line for line in messages(sessions, run_id)
    )


@pytest.mark.nightly
@pytest.mark.parametrize("spoil", ["weights", "manifest", "empty", "missing"])
def test_a_bad_copy_is_passed_over(sessions, queued, train, settings, straight, spoil):  # noqa: F811
    config = resolve(SMALL)
    run_id = queued(config)
    train(run_id, config, stop_after=3)
    copy = Path(settings.artifacts_url.removeprefix("file://")) / run_id / "s000003-a1"
    manifest, weights = copy / "manifest.json", copy / "model.safetensors"
    match spoil:
        case "weights":
            flip_last_bit(weights)
        case "manifest":
            manifest.write_bytes(manifest.read_bytes()[:100])
        case "empty":
            manifest.write_bytes(b"")
        case "missing":
            weights.unlink()
    leave_machine(settings)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight
    told = messages(sessions, run_id)
    assert any("continued from step 2" in line for line in told), told


@pytest.mark.nightly
def test_what_does_not_fit_is_refused_and_stays(sessions, stopped, train, settings, monkeypatch):  # noqa: F811
    run_id, config = stopped

    def refuse(directory, *_, **__):
        raise BadCheckpoint(directory, "its adapter belongs to another base")

    monkeypatch.setattr(checkpoint_store, "load_checkpoint", refuse)
    monkeypatch.setattr(ArtifactStore, "fetch", lambda *_, **__: pytest.fail("it is whole"))
    with pytest.raises(BadCheckpoint, match="none of the run's 1 checkpoints is whole"):
        train(run_id, config)
    assert (settings.artifacts_of(run_id) / "s000002-a1" / "model.safetensors").is_file()


@pytest.mark.nightly
def test_what_another_process_fetches_is_left_alone(sessions, queued, train, settings):  # noqa: F811
    config = resolve(SMALL)
    run_id = queued(config)
    draft = settings.artifacts_of(run_id) / ".s000002-a1.fetch"
    draft.mkdir(parents=True)
    train(run_id, config)
    assert draft.is_dir()


@pytest.mark.nightly
def test_strangers_in_the_bucket_stop_no_run(sessions, stopped, train, settings, straight):  # noqa: F811
    run_id, config = stopped
    bucket = Path(settings.artifacts_url.removeprefix("file://")) / run_id
    for name in ("s000003-a9", "s9999999999-a1"):
        (bucket / name).mkdir()
        (bucket / name / "manifest.json").write_text('{"files": {"../../x": {"bytes": 1}}}')
    shutil.copytree(bucket / "s000002-a1", bucket / "s000002-a7")
    (bucket / "s000002-a7" / "trainer" / "state.json").write_text("{}")
    leave_machine(settings)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight


@pytest.mark.nightly
def test_an_upload_that_hangs_holds_up_no_training(
    sessions,  # noqa: F811 - fixtures
    queued,  # noqa: F811
    train,  # noqa: F811
    settings,
    store,
    monkeypatch,
):
    rule = {"every": 1, "keep": 1, "spaced": 0}
    config = resolve(SMALL | {"checkpointing": rule, "evaluation": {"every": 0}})
    run_id = queued(config)
    upload, trained, during = ArtifactStore.upload, threading.Event(), []
    remove = ArtifactStore.remove_checkpoint

    def hang_until_trained(self, directory):
        during.append(directory.name)
        if len(during) == 1:
            assert trained.wait(60)
            assert directory.is_dir(), "retention has to leave what is being uploaded"
        upload(self, directory)

    def remove_when_trained(self, *names):
        assert trained.wait(60)
        remove(self, *names)

    def finish_later(trainer):
        settle = trainer.checkpoints.uploads.settle

        def settle_when_trained():
            trained.set()
            settle()

        trainer.checkpoints.uploads.settle = settle_when_trained

    monkeypatch.setattr(ArtifactStore, "upload", hang_until_trained)
    monkeypatch.setattr(ArtifactStore, "remove_checkpoint", remove_when_trained)
    assert train(run_id, config, prepare=finish_later) == Outcome("finished")
    assert during == ["s000001-a1", "s000004-a1"]
    assert set(store.listing(run_id)) == names(sessions, run_id)


@pytest.mark.nightly
def test_a_name_that_is_used_again_is_uploaded_again(
    sessions,  # noqa: F811 - fixtures
    stopped,
    train,  # noqa: F811
    settings,
    store,
    tmp_path,
):
    run_id, config = stopped
    orphan = tmp_path / "other" / "runs" / run_id / "s000004-a2"
    shutil.copytree(settings.artifacts_of(run_id) / "s000002-a1", orphan)
    (orphan / "manifest.json").write_text((orphan / "manifest.json").read_text() + " ")
    (orphan / "trainer" / "state.json").write_text("{}")  # of no run
    ArtifactStore(settings.artifacts_url, tmp_path / "other").upload(orphan)
    assert train(run_id, config) == Outcome("finished")
    with sessions() as session:
        rows = {row.path: row.sha256 for row in session.scalars(select(Checkpoint))}
    content = store.manifest(settings.artifacts_of(run_id) / "s000004-a2")
    assert sha256(content).hexdigest() == rows["s000004-a2"]


@pytest.mark.nightly
def test_a_database_that_knows_less_than_the_store_adopts_what_is_there(
    sessions,  # noqa: F811 - fixtures
    stopped,
    train,  # noqa: F811
    settings,
    straight,  # noqa: F811
):
    run_id, config = stopped
    with sessions.begin() as session:
        session.delete(session.scalars(select(Checkpoint)).one())
    leave_machine(settings)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight
    assert any("adopted checkpoint s000002-a1" in line for line in messages(sessions, run_id))


@pytest.mark.nightly
def test_a_damaged_checkpoint_is_replaced_by_its_copy(
    sessions,  # noqa: F811 - fixtures
    stopped,
    train,  # noqa: F811
    settings,
    straight,  # noqa: F811
):
    run_id, config = stopped
    weights = settings.artifacts_of(run_id) / "s000002-a1" / "model.safetensors"
    flip_last_bit(weights)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight
    assert not any("refused" in line for line in messages(sessions, run_id))


def test_a_copy_that_somebody_changed_is_refused(sessions, stopped, train, settings, store, tmp_path):  # noqa: F811
    run_id, config = stopped
    evil = tmp_path / "evil" / "runs" / run_id / "s000002-a1"
    shutil.copytree(settings.artifacts_of(run_id) / "s000002-a1", evil)
    manifest = evil / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    ArtifactStore(settings.artifacts_url, tmp_path / "evil").upload(evil)
    leave_machine(settings)
    with pytest.raises(BadCheckpoint, match="none of the run's 1 checkpoints is whole"):
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
    kept_names = names(sessions, run_id)
    assert "s000005-a1" in kept_names
    copied = {name for name, is_complete in store.listing(run_id).items() if is_complete}
    assert copied & kept_names, "the newest copy stays until there is a newer one"
    assert all((settings.artifacts_of(run_id) / name).is_dir() for name in kept_names)


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_a_fork_on_another_machine_fetches_its_origin(sessions, queued, train, settings):  # noqa: F811
    config = resolve(SMALL)
    parent = queued(config)
    train(parent, config)
    leave_machine(settings)
    longer = resolve(SMALL | {"steps": 6})
    fork = queued(longer, parent=parent, step=2)
    assert train(fork, longer) == Outcome("finished")
    assert any("forked from step 2 of r" in line for line in messages(sessions, fork))


@pytest.mark.nightly
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


@pytest.mark.nightly
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
