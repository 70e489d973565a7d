"""Tests of the download of a checkpoint's model."""

import io
import json
import tarfile
from hashlib import sha256

import pytest

from tests.factories import make_checkpoint, make_run


@pytest.fixture
def run(client, settings):
    """A finished run with a checkpoint of step 9."""
    with client.app.state.lab.sessions.begin() as session:
        run = make_run(session, status="finished", last_step=9, name="<b>otter</b>")
        make_checkpoint(session, run, settings.state, step=9, content=b"weights")
        return run.id


def read_archive_files(response):
    with tarfile.open(fileobj=io.BytesIO(response.content)) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def test_a_model_is_downloaded_with_its_card(client, viewer, run):
    for caller in (client, viewer):
        response = caller.get(f"/api/v1/runs/{run}/model", params={"step": 9})
        assert response.status_code == 200, response.text
        files = read_archive_files(response)
        assert files.keys() == {"README.md", "model.safetensors"}
        assert files["model.safetensors"] == b"weights"
        assert "# \\<b\\>otter\\</b\\>" in files["README.md"].decode()


def test_what_is_missing_is_named(client, stranger, run, settings):
    assert client.get(f"/api/v1/runs/{run}/model", params={"step": 8}).status_code == 404
    assert client.get("/api/v1/runs/nobody/model").status_code == 404
    assert stranger.get(f"/api/v1/runs/{run}/model").status_code == 401
    (settings.artifact_dir(run) / "s000009-a1/model.safetensors").unlink()
    response = client.get(f"/api/v1/runs/{run}/model")
    assert (response.status_code, "model.safetensors is missing" in response.text) == (409, True)


def test_file_names_in_a_changed_manifest_are_not_trusted(client, run, settings):
    manifest = settings.artifact_dir(run) / "s000009-a1/manifest.json"
    entry = {"bytes": 1, "sha256": sha256(b"").hexdigest()}
    manifest.write_text(json.dumps({"files": {"../../../secret": entry}}))
    response = client.get(f"/api/v1/runs/{run}/model")
    assert (response.status_code, "is damaged" in response.text) == (409, True)
