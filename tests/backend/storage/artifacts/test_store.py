"""Tests of the artifact store in S3 and in a directory, whose content may have been changed by anybody."""

import errno
import json
import shutil
import socket
import threading
from hashlib import sha256

import fsspec
import pytest

from backend.base.errors import Conflict
from backend.storage.artifacts import store as module
from backend.storage.artifacts.copies import Copies, copy_missing
from backend.storage.artifacts.reading import open_artifact, read_manifest
from backend.storage.artifacts.store import ArtifactFault, ArtifactStore, BadCopy
from backend.storage.models import Checkpoint

RUN, NAME = "01JRUN", "s000002-a1"
FILES = {"model.safetensors": b"weights" * 1000, "trainer/state.json": b"{}"}


@pytest.fixture(params=["s3", pytest.param("file", marks=pytest.mark.nightly)])
def url(request, tmp_path):
    return request.getfixturevalue("s3") if request.param == "s3" else f"file://{tmp_path}/share/lab"


IN_A_DIRECTORY = pytest.mark.parametrize("url", ["file"], indirect=True)
"""Mark of tests that do not depend on the kind of storage."""


@pytest.fixture
def runs_root(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def store(url, runs_root):
    return ArtifactStore(url, runs_root.parent)


@pytest.fixture
def write_directly(url):
    """A function that writes a file into the store without the store's code, and its (file system, base)."""
    return fsspec.core.url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)


def write(directory, files=None):
    files = FILES if files is None else files
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    entries = {
        name: {"bytes": len(content), "sha256": sha256(content).hexdigest()}
        for name, content in files.items()
    }
    (directory / "manifest.json").write_text(json.dumps({"format": 2, "files": entries}))
    return directory


def read_files(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_checkpoint_is_restored_unchanged(store, runs_root, tmp_path):
    directory = write(runs_root / RUN / NAME)
    store.upload(directory)
    assert store.list_copies(RUN) == {NAME: True}
    files_before = read_files(directory)
    directory.rename(tmp_path / "away")
    assert store.fetch(directory)
    assert read_files(directory) == files_before
    assert list(runs_root.rglob(".*")) == []
    assert list((runs_root.parent / "run").iterdir()) == []
    assert store.fetch(directory)  # it is present


def test_an_incomplete_checkpoint_is_not_fetched(store, runs_root, write_directly):
    directory = write(runs_root / RUN / NAME)
    store.upload(directory)
    files, base = write_directly
    files.rm_file(f"{base}/{RUN}/{NAME}/manifest.json")
    assert store.list_copies(RUN) == {NAME: False}
    directory.rename(runs_root / "away")
    assert not store.fetch(directory)
    assert not directory.exists()


def test_a_removed_checkpoint_is_gone_and_its_neighbours_stay(store, runs_root):
    for name in (NAME, "s000004-a1"):
        store.upload(write(runs_root / RUN / name))
    store.upload(write(runs_root / f"{RUN}X" / NAME))
    store.remove_checkpoint(RUN, NAME)
    assert store.list_copies(RUN) == {"s000004-a1": True}
    store.remove_run(RUN)
    assert store.list_copies(RUN) == {}
    assert store.list_copies(f"{RUN}X") == {NAME: True}


def test_files_are_read_in_chunks_and_from_this_machine_first(store, runs_root, settings, url):
    settings = settings.model_copy(update={"artifacts_url": url})
    directory = write(settings.artifact_dir(RUN) / NAME)
    ArtifactStore(url, settings.state).upload(directory)
    path = directory / "model.safetensors"
    path.write_bytes(b"newer")
    with open_artifact(settings, path) as file:
        assert file.read() == b"newer"
    path.unlink()
    with open_artifact(settings, path) as file:
        assert file.read(7) == b"weights"
        file.seek(6993)
        assert file.read() == b"weights"
    with pytest.raises(FileNotFoundError):
        open_artifact(settings.model_copy(update={"artifacts_url": ""}), path)


@IN_A_DIRECTORY
@pytest.mark.parametrize(
    "manifest",
    [
        b"not JSON",
        b"[]",
        b'{"files": []}',
        b'{"files": {}}',
        b'{"files": {"../../../evil.json": {"bytes": 4}}}',
        b'{"files": {"/etc/evil.json": {"bytes": 4}}}',
        b'{"files": {"trainer/../../evil.json": {"bytes": 4}}}',
        b'{"files": {"evil.py": {"bytes": 4}}}',
        b'{"files": {"evil.pt": {"bytes": 4}}}',
        b'{"files": {"manifest.json": {"bytes": 4}}}',
        b'{"files": {"config.json": {"bytes": -1}}}',
        b'{"files": {"config.json": {"bytes": true}}}',
        b'{"files": {"config.json": {"bytes": 5}}}',  # it has four
        b'{"files": {"config.json": 4}}',
        b"[" * 100_000,
    ],
)
def test_a_forged_manifest_writes_nothing(store, runs_root, write_directly, manifest):
    files, base = write_directly
    key = f"{base}/{RUN}/{NAME}"
    if files.protocol[0] == "file":
        files.makedirs(f"{key}/trainer", exist_ok=True)
    files.pipe_file(f"{key}/config.json", b"evil")
    files.pipe_file(f"{key}/manifest.json", manifest)
    with pytest.raises(ArtifactFault):
        store.fetch(runs_root / RUN / NAME)
    assert read_files(runs_root) == {}


@IN_A_DIRECTORY
def test_an_oversized_manifest_is_not_read(store, runs_root, write_directly, monkeypatch):
    monkeypatch.setattr(module, "MAX_MANIFEST_BYTES", 100)
    store.upload(write(runs_root / RUN / NAME))
    (runs_root / RUN / NAME).rename(runs_root / "away")
    with pytest.raises(ArtifactFault, match=r"manifest.json has \d+ bytes, expected 1 to 100"):
        store.fetch(runs_root / RUN / NAME)


@IN_A_DIRECTORY
@pytest.mark.parametrize("name", ["..", "../other", "s1", "x", ""])
def test_no_other_name_is_removed_or_opened(store, runs_root, name):
    with pytest.raises(ArtifactFault, match="is not the name of a checkpoint"):
        store.remove_checkpoint(RUN, name)
    for run_id in ("", "..", "a/b", f"{RUN}/../x"):
        with pytest.raises(ArtifactFault, match="is not the id of a run"):
            store.remove_run(run_id)
    with pytest.raises(ArtifactFault, match="is not a file of a checkpoint"):
        store.open(runs_root / RUN / NAME / ".." / ".." / "x")


@IN_A_DIRECTORY
def test_a_full_disk_is_a_local_error_and_leaves_nothing(store, runs_root, monkeypatch):
    directory = write(runs_root / RUN / NAME)
    store.upload(directory)
    directory.rename(runs_root / "away")
    monkeypatch.setattr(module, "free_bytes", lambda _: 1000)
    with pytest.raises(OSError, match=r"needs 8\.0 MB") as error_info:
        store.fetch(directory)
    assert error_info.value.errno == errno.ENOSPC
    assert not directory.exists()


def test_two_concurrent_fetches_get_one_directory(url, runs_root, tmp_path):
    directory = write(runs_root / RUN / NAME)
    ArtifactStore(url, runs_root.parent).upload(directory)
    directory.rename(tmp_path / "away")
    fetch_results = []
    stores = [ArtifactStore(url, runs_root.parent) for _ in range(4)]
    threads = [
        threading.Thread(target=lambda client=client: fetch_results.append(client.fetch(directory)))
        for client in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fetch_results == [True] * 4
    assert read_files(directory) == read_files(tmp_path / "away")
    assert sorted(path.name for path in runs_root.iterdir()) == [RUN]


def test_the_wait_for_a_silent_server_is_bounded(s3, runs_root, monkeypatch):
    monkeypatch.setattr(module, "CALL_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent_server.getsockname()[1]}")
        store = ArtifactStore(s3, runs_root.parent)
        directory = write(runs_root / RUN / NAME)
        for call in (store.try_out, lambda: store.remove_run(RUN), lambda: store.upload(directory)):
            with pytest.raises(ArtifactFault, match="no answer within"):
                call()


def test_a_directory_is_replaced_only_by_a_complete_copy(store, runs_root, write_directly):
    directory = write(runs_root / RUN / NAME)
    store.upload(directory)
    (directory / "model.safetensors").write_bytes(b"damaged")
    assert store.fetch(directory, replace_existing=True)
    assert (directory / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    files, base = write_directly
    files.rm_file(f"{base}/{RUN}/{NAME}/model.safetensors")
    with pytest.raises(BadCopy):
        store.fetch(directory, replace_existing=True)
    assert (directory / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert [path.name for path in (runs_root / RUN).iterdir()] == [NAME]


def test_a_link_in_a_shared_directory_is_not_followed(tmp_path, runs_root):
    store = ArtifactStore(f"file://{tmp_path}/share", runs_root.parent)
    store.upload(write(runs_root / RUN / NAME))
    (tmp_path / "secret").write_text("secret")
    copy = tmp_path / "share" / RUN / NAME / "model.safetensors"
    copy.unlink()
    copy.symlink_to(tmp_path / "secret")
    for call in (store.open, store.size):
        with pytest.raises(ArtifactFault, match="is a link that leads out of it"):
            call(runs_root / RUN / NAME / "model.safetensors")
    shutil.rmtree(tmp_path / "share" / RUN)
    (tmp_path / "share" / RUN).symlink_to(tmp_path)
    for operation in (store.list_copies, store.remove_run):
        with pytest.raises(ArtifactFault, match="is a link that leads out of it"):
            operation(RUN)


def test_a_manifest_must_match_its_row(store, runs_root, settings, url):
    settings = settings.model_copy(update={"artifacts_url": url})
    directory = write(settings.artifact_dir(RUN) / NAME)
    content = (directory / "manifest.json").read_bytes()
    row = Checkpoint(run_id=RUN, path=NAME, sha256=sha256(content).hexdigest())
    assert read_manifest(settings, row) == content
    ArtifactStore(url, settings.state).upload(directory)
    directory.rename(runs_root.parent / "away")
    assert read_manifest(settings, row) == content
    with pytest.raises(ValueError, match="has changed"):
        read_manifest(settings, Checkpoint(run_id=RUN, path=NAME, sha256="0" * 64))
    with pytest.raises(FileNotFoundError):
        read_manifest(settings, Checkpoint(run_id=RUN, path="s000009-a1", sha256=""))


def test_missing_copies_are_made(store, runs_root, url, settings):
    with pytest.raises(Conflict, match="ARTIFACTS_URL is empty"):
        list(copy_missing(settings, []))
    settings = settings.model_copy(update={"artifacts_url": url})
    rows = []
    for name in ("s000001-a1", "s000004-a1", NAME):
        directory = write(settings.artifact_dir(RUN) / name)
        digest = sha256((directory / "manifest.json").read_bytes()).hexdigest()
        rows.append(Checkpoint(run_id=RUN, path=name, sha256=digest))
    (settings.artifact_dir(RUN) / "s000001-a1" / "model.safetensors").unlink()
    (settings.artifact_dir(RUN) / "s000004-a1").rename(runs_root.parent / "away")
    first, *later_messages = list(copy_missing(settings, rows))
    assert first[0].startswith(f"{RUN}/s000001-a1 was not copied: artifact store ")
    assert not first[1]
    assert later_messages == [
        (f"{RUN}/s000004-a1 is missing on this machine and in the store", False),
        (f"copied {RUN}/{NAME}", True),
    ]
    assert list(copy_missing(settings, rows[2:])) == []
    assert Copies(settings).has(RUN, NAME)
    write(settings.artifact_dir(RUN) / NAME, {"model.safetensors": b"another of this name"})
    manifest = (settings.artifact_dir(RUN) / NAME / "manifest.json").read_bytes()
    rows[2].sha256 = sha256(manifest).hexdigest()
    assert list(copy_missing(settings, rows[2:])) == [(f"copied {RUN}/{NAME}", True)]
    assert ArtifactStore(url, settings.state).manifest(settings.artifact_dir(RUN) / NAME) == manifest
    assert not Copies(settings).has(RUN, "s000004-a1")
