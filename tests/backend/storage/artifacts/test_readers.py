"""Tests of readers of checkpoints whose files are only in the artifact store."""

import io
import shutil
import tarfile

import pytest
from sqlalchemy import select

from backend.base.settings import Settings
from backend.exchange.exports.command import find_source
from backend.experiments.trials.fork_point import manifest_exists
from backend.runs.strays import Strays
from backend.service.cli import main
from backend.storage.artifacts.store import ArtifactFault, ArtifactStore, artifact_store
from backend.storage.models import Checkpoint, Event, Run
from tests.factories import make_attempt, make_checkpoint, make_experiment, make_run, write_metric

WEIGHTS = bytes(range(256)) * 100


@pytest.fixture
def settings(request, settings, tmp_path):
    in_s3 = getattr(request, "param", "file") == "s3"
    url = request.getfixturevalue("s3") if in_s3 else f"file://{tmp_path}/share"
    return settings.model_copy(update={"artifacts_url": url})


IN_BOTH_STORES = pytest.mark.parametrize(
    "settings", [pytest.param("s3", marks=pytest.mark.nightly), "file"], indirect=True
)


@pytest.fixture
def sessions(client):
    return client.app.state.lab.sessions


@pytest.fixture
def run(sessions, settings):
    """A finished run whose checkpoint of step 9 is only in the store."""
    with sessions.begin() as session:
        run_fields = {"experiment_id": make_experiment(session).id, "attempt": 1, "started_at": 1.0}
        run = make_run(session, status="finished", last_step=9, name="otter", finished_at=2.0, **run_fields)
        attempt = make_attempt(session, run, 1)
        attempt.started_at, attempt.ended_at = 1.0, 2.0
        write_metric(session, run, "reward/mean", {1: 0.5, 9: 0.75})
        make_checkpoint(session, run, settings.state, step=9, content=WEIGHTS)
        run_id = run.id
    artifact_store(settings).upload(settings.artifact_dir(run_id) / "s000009-a1")
    shutil.rmtree(settings.artifact_dir(run_id))
    return run_id


def members(response):
    with tarfile.open(fileobj=io.BytesIO(response.content)) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


@pytest.fixture
def take_store_away(monkeypatch):
    """A function that makes every request to the store fail."""

    def fail(*_):
        raise ArtifactFault("artifact store: away")

    def go_away():
        for name in ("open", "size", "list_copies", "fetch", "try_out", "upload"):
            monkeypatch.setattr(ArtifactStore, name, fail)

    return go_away


@IN_BOTH_STORES
def test_a_file_is_downloaded(client, run):
    path = f"/api/v1/runs/{run}/files/s000009-a1"
    response = client.get(f"{path}/model.safetensors")
    assert (response.status_code, response.content) == (200, WEIGHTS)
    assert response.headers["content-length"] == str(len(WEIGHTS))
    assert response.headers["content-disposition"] == 'attachment; filename="model.safetensors"'
    assert client.get(f"{path}/other.json").status_code == 404
    assert client.get(f"{path}/..%2F..%2Fother").status_code == 404


@IN_BOTH_STORES
def test_the_checkpoint_list_shows_where_the_files_are(client, run, sessions, settings):
    path = f"/api/v1/runs/{run}/checkpoints/copies"
    with sessions.begin() as session:
        row = session.get_one(Run, run)
        for step in (19, 29):
            make_checkpoint(session, row, settings.state, step=step, content=WEIGHTS)
    shutil.rmtree(settings.artifact_dir(run) / "s000029-a1")
    document = client.get(path).json()
    location_by_name = {item["name"]: (item["is_here"], item["is_copied"]) for item in document["items"]}
    assert document["has_store"]
    assert location_by_name == {
        "s000029-a1": (False, False),
        "s000019-a1": (True, False),
        "s000009-a1": (False, True),
    }
    artifact_store(settings).upload(settings.artifact_dir(run) / "s000019-a1")
    assert client.get(path).json()["items"][1] == {"name": "s000019-a1", "is_here": True, "is_copied": True}


def test_files_missing_from_the_store_are_gone(client, run, settings):
    artifact_store(settings).remove_run(run)
    assert client.get(f"/api/v1/runs/{run}/files/s000009-a1/model.safetensors").status_code == 404
    assert client.get(f"/api/v1/runs/{run}/model").status_code == 409
    archive = members(download_archive(client, run))
    assert not any(name.startswith("checkpoints/") for name in archive)


def test_an_unreachable_store_is_not_treated_as_empty(client, run, take_store_away):
    take_store_away()
    for path in (
        "files/s000009-a1/model.safetensors",
        "model",
        "archive?checkpoints=true",
        "checkpoints/copies",
    ):
        response = client.get(f"/api/v1/runs/{run}/{path}")
        assert (response.status_code, "artifact store: away" in response.text) == (503, True), response.text


def download_archive(client, run):
    response = client.get(f"/api/v1/runs/{run}/archive", params={"checkpoints": "true"})
    assert response.status_code == 200, response.text
    return response


def import_into(client, content):
    headers = {"Content-Type": "application/octet-stream"}
    return client.post("/api/v1/imports?file=run.tar&experiment=x", content=content, headers=headers)


@IN_BOTH_STORES
def test_an_imported_archive_is_copied_to_the_store(client, run, settings):
    content = download_archive(client, run).content
    response = import_into(client, content)
    assert response.status_code == 201, response.text
    assert artifact_store(settings).list_copies(response.json()["run"]) == {"s000009-a1": True}


def test_a_fork_point_is_where_its_copy_is(sessions, run, settings):
    with sessions() as session:
        row = session.scalars(select(Checkpoint).where(Checkpoint.run_id == run)).one()
    assert manifest_exists(settings, row)
    artifact_store(settings).remove_run(run)
    assert not manifest_exists(settings, row)


def test_the_command_line_exports_and_copies(
    sessions, run, settings, sqlite_url, tmp_path, monkeypatch, capsys
):
    for name in ("state_dir", "artifacts_url"):
        monkeypatch.setenv(name.upper(), str(getattr(settings, name)))
    monkeypatch.setenv("DATABASE_URL", sqlite_url)
    assert main(["copy-checkpoints", "otter"]) == 0
    assert "all 1 checkpoints are in the artifact store" in capsys.readouterr().out
    assert find_source(Settings(), "otter", 9).directory.is_dir()
    artifact_store(settings).remove_run(run)
    assert main(["copy-checkpoints"]) == 0
    assert capsys.readouterr().out == f"  copied {run}/s000009-a1\n"
    monkeypatch.setenv("ARTIFACTS_URL", "")
    assert main(["copy-checkpoints"]) == 1
    assert "ARTIFACTS_URL is empty" in capsys.readouterr().err


def test_a_sweep_reports_only_files_missing_from_the_store(sessions, run, settings):
    (settings.state / "runs/01JSOMEOTHERDIRECTORY").mkdir(parents=True)  # the disk is present

    def sweep_messages():
        for _ in Strays(settings, sessions).sweep():
            pass
        with sessions() as session:
            return list(session.scalars(select(Event.message).where(Event.run_id == run)))

    assert sweep_messages() == []
    artifact_store(settings).remove_run(run)
    assert sweep_messages() == [
        "checkpoint s000009-a1 is missing from the disk: no run can continue or start from it"
    ]


def test_a_sweep_reports_nothing_while_the_store_is_unreachable(sessions, run, settings, take_store_away):
    take_store_away()
    (settings.state / "runs/01JSOMEOTHERDIRECTORY").mkdir(parents=True)
    for _ in Strays(settings, sessions).sweep():
        pass
    with sessions() as session:
        assert list(session.scalars(select(Event.message).where(Event.run_id == run))) == []
