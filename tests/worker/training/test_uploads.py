"""Tests of checkpoints in the artifact store, from which a run can continue on another machine."""

import shutil
from pathlib import Path

import pytest
from sqlalchemy import select

from backend.config.merge import resolve
from backend.storage.artifacts.store import ArtifactFault, ArtifactStore, artifact_store
from backend.storage.models import Checkpoint, Event
from tests.trained_runs import SMALL_CONFIG, series
from worker.checkpoints import uploads
from worker.checkpoints.files import BadCheckpoint
from worker.outcome import Outcome


@pytest.fixture
def settings(request, settings, tmp_path):
    in_s3 = getattr(request, "param", "file") == "s3"
    url = request.getfixturevalue("s3") if in_s3 else f"file://{tmp_path}/share/lab"
    return settings.model_copy(update={"artifacts_url": url})


IN_BOTH_STORES = pytest.mark.parametrize(
    "settings", [pytest.param("s3", marks=pytest.mark.nightly), "file"], indirect=True
)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(uploads, "PATIENCE_SECONDS", 0.0)


@pytest.fixture
def store(settings):
    return artifact_store(settings)


@pytest.fixture
def stopped_run(straight, queued, train):
    """A small run whose worker was asked to stop in step 2, and its config."""
    config = resolve(SMALL_CONFIG)
    run_id = queued(config)
    train(run_id, config, stop_after=2)
    return run_id, config


def names(sessions, run_id):
    with sessions() as session:
        return set(session.scalars(select(Checkpoint.path).where(Checkpoint.run_id == run_id)))


def messages(sessions, run_id):
    with sessions() as session:
        return list(session.scalars(select(Event.message).where(Event.run_id == run_id)))


def flip_last_bit(path):
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def delete_local_files(settings):
    """Leave only the database and the store for the next attempt."""
    shutil.rmtree(settings.state / "runs")


@IN_BOTH_STORES
def test_another_machine_continues_from_the_store(sessions, stopped_run, train, settings, straight):
    run_id, config = stopped_run
    delete_local_files(settings)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight
    assert any("continued from step 2" in line for line in messages(sessions, run_id))


@pytest.mark.nightly
def test_a_machine_that_dies_during_an_upload_loses_only_the_steps_after_the_copy(
    sessions, queued, train, settings, store, straight
):
    config = resolve(SMALL_CONFIG)
    run_id = queued(config)
    train(run_id, config, stop_after=3)
    assert set(store.list_copies(run_id)) == {"s000002-a1", "s000003-a1"}
    store.remove_checkpoint(run_id, "s000003-a1")  # as if it had never ended
    delete_local_files(settings)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight
    assert any("refused" in line and "s000003-a1" in line for line in messages(sessions, run_id))


@pytest.mark.nightly
@pytest.mark.parametrize("spoil", ["weights", "manifest", "empty", "missing"])
def test_a_bad_copy_is_skipped(sessions, queued, train, settings, straight, spoil):
    config = resolve(SMALL_CONFIG)
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
    delete_local_files(settings)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight
    history = messages(sessions, run_id)
    assert any("continued from step 2" in line for line in history), history


@pytest.mark.nightly
def test_foreign_files_in_the_bucket_stop_no_run(sessions, stopped_run, train, settings, straight):
    run_id, config = stopped_run
    bucket = Path(settings.artifacts_url.removeprefix("file://")) / run_id
    for name in ("s000003-a9", "s9999999999-a1"):
        (bucket / name).mkdir()
        (bucket / name / "manifest.json").write_text('{"files": {"../../x": {"bytes": 1}}}')
    shutil.copytree(bucket / "s000002-a1", bucket / "s000002-a7")
    (bucket / "s000002-a7" / "trainer" / "state.json").write_text("{}")
    delete_local_files(settings)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight


@pytest.mark.nightly
def test_a_damaged_checkpoint_is_replaced_by_its_copy(sessions, stopped_run, train, settings, straight):
    run_id, config = stopped_run
    weights = settings.artifact_dir(run_id) / "s000002-a1" / "model.safetensors"
    flip_last_bit(weights)
    assert train(run_id, config) == Outcome("finished")
    assert series(sessions, run_id) == straight
    assert not any("refused" in line for line in messages(sessions, run_id))


def test_a_modified_copy_is_refused(sessions, stopped_run, train, settings, store, tmp_path):
    run_id, config = stopped_run
    modified_directory = tmp_path / "evil" / "runs" / run_id / "s000002-a1"
    shutil.copytree(settings.artifact_dir(run_id) / "s000002-a1", modified_directory)
    manifest = modified_directory / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    ArtifactStore(settings.artifacts_url, tmp_path / "evil").upload(modified_directory)
    delete_local_files(settings)
    with pytest.raises(BadCheckpoint, match="none of the run's 1 checkpoints is complete"):
        train(run_id, config)


def test_training_continues_while_the_store_is_unreachable(
    sessions, queued, train, settings, store, monkeypatch
):
    config = resolve(SMALL_CONFIG | {"steps": 5, "checkpointing": {"every": 1, "keep": 1}})
    run_id = queued(config)
    upload = ArtifactStore.upload

    def fail_behind_step_2(self, directory):
        if directory.name > "s000002":
            raise ArtifactFault("artifact store: away")
        upload(self, directory)

    monkeypatch.setattr(ArtifactStore, "upload", fail_behind_step_2)
    assert train(run_id, config) == Outcome("finished")
    history = messages(sessions, run_id)
    assert sum("a checkpoint is on this machine only: artifact store: away" in line for line in history) == 1
    assert any(f"copy-checkpoints {run_id}" in line for line in history)
    kept_names = names(sessions, run_id)
    assert "s000005-a1" in kept_names
    copied_names = {name for name, is_complete in store.list_copies(run_id).items() if is_complete}
    assert copied_names & kept_names, "the newest copy stays until there is a newer one"
    assert all((settings.artifact_dir(run_id) / name).is_dir() for name in kept_names)


@pytest.mark.nightly
def test_a_store_that_is_available_again_gets_the_missing_copies(
    sessions, queued, train, settings, store, monkeypatch
):
    config = resolve(SMALL_CONFIG | {"checkpointing": {"every": 1, "keep": 1}})
    run_id = queued(config)
    upload = ArtifactStore.upload

    tried_names = []

    def fail_twice(self, directory):
        tried_names.append(directory.name)
        if len(tried_names) <= 2:
            raise ArtifactFault("artifact store: away")
        upload(self, directory)

    monkeypatch.setattr(ArtifactStore, "upload", fail_twice)
    assert train(run_id, config) == Outcome("finished")
    assert "checkpoints are copied to the artifact store again" in messages(sessions, run_id)
    assert store.list_copies(run_id) == dict.fromkeys(names(sessions, run_id), True)
