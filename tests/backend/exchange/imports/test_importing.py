"""Tests of imports over HTTP: an imported run is like any other, except that it never trains."""

import io
import json
import math
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import func, select

from backend.base.sandbox.errors import Unusable
from backend.exchange.imports.tfrecord import masked_crc32c
from backend.metrics.reading import read_points
from backend.metrics.sealing import find_sealable
from backend.service.cli import main
from backend.service.maintenance.reconciler import Reconciler
from backend.storage.engine import open_engine, open_sessions
from backend.storage.models import Experiment, Metric, MetricBlock, Run

LOGS = Path(__file__).parent / "logs"
CSV_LOG = "step,reward,kl,note\n1,0.25,nan,a\n2,0.5,0.01,b\n3,0.75,inf,c\n"


def send(client, content=CSV_LOG, *, headers=None, **params):
    """Post a file with this content to /imports."""
    query = urlencode({"file": "log.csv", **params})
    body = content if isinstance(content, bytes) else content.encode()
    kind = {"Content-Type": "application/octet-stream"}
    return client.post(f"/api/v1/imports?{query}", content=body, headers=kind | (headers or {}))


def import_run(client, content=CSV_LOG, **params):
    """Import the content and return the id of the run that it made."""
    response = send(client, content, **params)
    assert response.status_code == 201, response.text
    return client.get(f"/api/v1/runs/{response.json()['run']}").json()


def tensorboard_event(time, *, step, tag, value):
    """Return the bytes of one TensorBoard event."""

    def field(number, kind, content):
        return bytes([number << 3 | kind]) + content

    def message(number, content):
        return field(number, 2, bytes([len(content)]) + content)

    scalar = message(1, message(1, tag.encode()) + field(2, 5, struct.pack("<f", value)))
    event = field(1, 1, struct.pack("<d", time)) + field(2, 0, bytes([step])) + message(5, scalar)
    length = struct.pack("<Q", len(event))
    return b"".join(field + struct.pack("<I", masked_crc32c(field)) for field in (length, event))


def count(client, table):
    with client.app.state.lab.sessions() as session:
        return session.scalar(select(func.count()).select_from(table))


def test_a_dry_run_reports_and_stores_nothing(client):
    response = send(client, dry_run="true")
    assert response.status_code == 200
    document = response.json()
    report = document["report"]
    assert (document["run"], document["name"], document["experiment"]) == (None, "log", "log.csv")
    assert (report["format"], report["step"], report["points"], report["metrics"]) == ("csv", "step", 6, 2)
    assert [column["state"] for column in report["columns"]] == ["renamed", "renamed", "dropped"]
    assert count(client, Run) == count(client, Experiment) == count(client, MetricBlock) == 0


def test_an_imported_run_has_curves_a_summary_and_an_origin(client):
    run = import_run(client, name="baseline", experiment="old runs", seed=3)
    assert (run["name"], run["experiment_name"], run["seed"]) == ("baseline", "old runs", 3)
    assert (run["origin"], run["origin_file"], run["status"]) == ("csv", "log.csv", "finished")
    assert (run["steps"], run["last_step"], run["config"]) == (3, 3, {})
    assert run["summary"]["last"] == {"reward/mean": 0.75, "kl/k3": "Infinity"}
    assert run["summary"]["best"] == {"reward/mean": {"value": 0.75, "step": 3}}
    series = client.get("/api/v1/series", params={"runs": run["id"], "metrics": "reward/mean,kl/k3"}).json()
    assert {curve["metric"]: curve["values"] for curve in series["series"]}["reward/mean"] == [
        0.25,
        0.5,
        0.75,
    ]
    [event] = client.get(f"/api/v1/runs/{run['id']}/events").json()["items"]
    assert event["message"] == "imported from CSV, log.csv: 6 values of 2 metrics"
    exported_csv = client.get(f"/api/v1/runs/{run['id']}/metrics.csv").text
    assert exported_csv == "step,kl/k3,reward/mean\n1,NaN,0.25\n2,0.01,0.5\n3,Infinity,0.75\n"


def test_an_export_of_this_service_can_be_imported(client):
    first = import_run(client)
    exported_csv = client.get(f"/api/v1/runs/{first['id']}/metrics.csv").text
    second = import_run(client, exported_csv)
    assert second["summary"] == first["summary"]
    assert client.get(f"/api/v1/runs/{second['id']}/metrics.csv").text == exported_csv


@pytest.mark.parametrize(
    ("move", "verb", "body"),
    [
        ("stop", "stopped", None),
        ("pause", "paused", None),
        ("resume", "resumed", None),
        ("retry", "retried", None),
        ("clone", "cloned", {}),
        ("fork", "forked", {"step": 1}),
        ("evaluations", "evaluated", {}),
    ],
)
def test_an_imported_run_never_trains(client, move, verb, body):
    run = import_run(client)
    response = client.post(f"/api/v1/runs/{run['id']}/{move}", json=body)
    assert response.status_code == 409
    sentence = f"this run was imported from a CSV log and has no checkpoints: it cannot be {verb}"
    assert response.json()["detail"] == sentence


def test_an_imported_run_can_be_tagged_archived_trashed_and_deleted(client):
    path = f"/api/v1/runs/{import_run(client)['id']}"
    assert client.patch(path, json={"tags": ["old"], "notes": "from 2024"}).json()["tags"] == ["old"]
    assert client.delete(path).json()["deleted"] is True
    assert client.post(f"{path}/restore").json()["deleted"] is False
    client.delete(path)
    assert client.delete(path, params={"forever": True}).status_code == 202
    assert client.get(path).status_code == 404


def test_points_of_an_imported_run_are_sealed_immediately(client):
    values = {step: step / 7 for step in range(1, 3000, 3)} | {4: math.nan, 7: math.inf, 10: -0.0}
    run = import_run(client, "step,loss\n" + "".join(f"{step},{loss}\n" for step, loss in values.items()))
    sessions = client.app.state.lab.sessions
    with sessions() as session:
        assert find_sealable(session) == []
        assert session.scalar(select(func.count()).select_from(Metric)) == 0
        stored_points = read_points(session, [run["id"]], ["loss/total"])[run["id"], "loss/total"]
    assert stored_points.steps.tolist() == list(values)
    assert stored_points.values.tobytes() == np.array(list(values.values())).tobytes()


def test_runs_of_one_variant_in_one_experiment_become_its_seeds(client):
    for seed, reward in ((0, 1.0), (1, 3.0)):
        text = f"step,reward\n1,{reward}\n"
        import_run(client, text, experiment="old", variant="grpo", seed=seed, name=f"s{seed}")
    other_run = import_run(client, "step,reward\n1,9\n", experiment="old", variant="dapo")
    [experiment] = client.get("/api/v1/experiments").json()["items"]
    assert (experiment["variants"], experiment["seeds"]) == (["grpo", "dapo"], [0, 1])
    params = {"experiment": other_run["experiment"], "metrics": "reward/mean", "baseline": "grpo"}
    document = client.get("/api/v1/matrix", params=params).json()
    assert document["looks"] == "any time"  # a log has no launch plan
    [grpo, dapo] = document["rows"]
    assert (grpo["cells"]["reward/mean:final"]["mean"], len(grpo["runs"])) == (2.0, 2)
    assert dapo["cells"]["reward/mean:final"]["versus"]["mean"] == 8.0  # one pair: the first of each variant


def test_two_unnamed_logs_do_not_become_two_seeds(client):
    first, second = import_run(client), import_run(client)
    assert (first["name"], second["name"]) == ("log", "log 2")
    assert first["experiment"] == second["experiment"]
    assert first["config_hash"] != second["config_hash"]


def test_concurrently_imported_logs_do_not_become_two_seeds(client):
    with ThreadPoolExecutor(4) as pool:
        responses = list(pool.map(lambda value: send(client, f"step,reward\n1,{value}\n"), range(4)))
    assert sorted(response.json()["name"] for response in responses) == ["log", "log 2", "log 3", "log 4"]
    with client.app.state.lab.sessions() as session:
        assert session.scalar(select(func.count(Run.config_hash.distinct()))) == 4


@pytest.mark.parametrize("time", [1.7e12, 1e300, -1e300, float("nan"), 0.0])
def test_an_invalid_time_does_not_break_the_list(client, time):
    event = tensorboard_event(time, step=1, tag="reward", value=0.5)
    run = import_run(client, event, file="events.out.tfevents.1.host")
    assert run["finished_at"] is None
    [listed_run] = client.get("/api/v1/runs").json()["items"]
    assert (listed_run["id"], listed_run["started_at"]) == (run["id"], None)
    assert client.get(f"/api/v1/runs/{run['id']}/archive").status_code == 200


def test_an_experiment_launched_here_accepts_no_imported_runs(client):
    body = {"name": "mine", "variants": [{"name": "a"}], "seeds": [0]}
    experiment = client.post("/api/v1/experiments", json=body).json()
    run = import_run(client, experiment="mine")
    assert run["experiment"] != experiment["id"]
    queued_runs = client.get("/api/v1/runs", params={"experiment": experiment["id"]}).json()["items"]
    assert [run["origin"] for run in queued_runs] == [""]


def test_the_same_key_creates_one_run(client):
    responses = [send(client, headers={"Idempotency-Key": "k1"}).json() for _ in range(2)]
    assert responses[0]["run"] == responses[1]["run"]
    assert count(client, Run) == 1
    assert send(client, name="other", headers={"Idempotency-Key": "k1"}).status_code == 409
    assert send(client, "step,loss\n1,2\n", headers={"Idempotency-Key": "k1"}).status_code == 409


def test_estimates_and_validation_ignore_imported_runs(client):
    import_run(client, "step,step_time,reward\n1,2.5,1\n")
    response = client.post("/api/v1/validate", json={})
    assert response.status_code == 200
    assert response.json()["estimates"]["like_runs"] == response.json()["estimates"]["scaled_runs"] == 0


def test_configs_of_imported_runs_are_listed_and_group_curves(client):
    rows = [{"step": 1, "reward": 1.0}]
    state = {"max_steps": 100, "global_step": 1, "log_history": rows}
    run = import_run(client, json.dumps(state), file="trainer_state.json")
    assert run["config"] == {"max_steps": 100}
    assert run["steps"] == 100
    [listed_run] = client.get("/api/v1/runs", params={"include": "config"}).json()["items"]
    assert listed_run["config"] == {"max_steps": 100}
    query = {"runs": run["id"], "metrics": "reward/mean", "group_by": "config.max_steps"}
    assert client.get("/api/v1/series", params=query).json()["series"][0]["group"] == "100"


@pytest.mark.parametrize(
    ("params", "status", "phrase"),
    [
        ({"format": "excel"}, 422, "is 'excel'; expected one of csv"),
        ({"mapping": "[]"}, 422, "expected a JSON object of names by column"),
        ({"mapping": '{"reward": 1}'}, 422, "expected a JSON object of names by column"),
        ({"step": "none"}, 422, "there is no column 'none'"),
        ({"seed": -1}, 422, "seed"),
        ({"file": ""}, 422, "file"),
        ({"name": "hf_" + "a" * 34}, 422, "looks like a secret"),
    ],
)
def test_wrong_parameters_are_refused(client, params, status, phrase):
    response = send(client, **params)
    assert response.status_code == status
    assert phrase in response.text
    assert count(client, Run) == 0


def test_a_file_that_is_not_a_log_leaves_nothing_behind(client):
    response = send(client, b"\x00\x01\x02", file="x.bin")
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert error["path"] == "file"
    assert error["message"].startswith("x.bin is a binary file of an unknown kind")
    assert count(client, Run) == count(client, Experiment) == 0


def test_a_sandbox_that_does_not_start_is_reported(client, monkeypatch):
    def fail(*_, **__):
        raise Unusable("no bubblewrap")

    monkeypatch.setattr("backend.exchange.imports.log_file.Sandbox.run_operation", fail)
    response = send(client, (LOGS / "run.wandb").read_bytes())
    assert response.status_code == 503
    assert "the sandbox, which does not start here: no bubblewrap" in response.json()["detail"]


def test_a_binary_log_is_imported_through_http(client):
    run = import_run(client, (LOGS / "run.wandb").read_bytes(), file="run.wandb")
    assert (run["origin"], run["name"], run["seed"], run["last_step"]) == ("wandb", "tiny-digits", 11, 12)
    assert run["config"]["learning_rate"] == 1e-3


def test_a_failure_while_storing_leaves_nothing_behind(client, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("the disk is gone")

    monkeypatch.setattr("backend.exchange.imports.store.add_event", fail)
    assert send(client).status_code == 500
    assert count(client, Run) == count(client, Experiment) == count(client, MetricBlock) == 0


def test_a_secret_in_a_config_is_not_stored(client):
    state = {"log_history": [{"step": 1, "loss": 1}], "trial_params": {"token": "hf_" + "b" * 34}}
    assert import_run(client, json.dumps(state, indent=1))["config"] == {
        "trial_params": {"token": "[secret]"}
    }


def test_a_secret_in_a_name_or_text_of_a_log_is_not_stored(client):
    secret = "hf_" + "b" * 34
    table = pa.table({
        "step": [1], "prompt": [secret], "completion": [f"it is {secret}"], secret: [1.0], "advantage": [0.5],
    })  # fmt: skip
    file = io.BytesIO()
    pq.write_table(table, file)
    for content in (file.getvalue(), f"step,loss,{secret}\n1,0.5,{secret}\n2,0.5,1\n"):
        response = send(client, content)
        assert (response.status_code, secret in response.text) == (201, False), response.text
        run = response.json()["run"]
        responses = [client.get(f"/api/v1/runs/{run}{path}").text for path in ("", "/events", "/metrics.csv")]
        responses.append(client.get("/api/v1/rollouts", params={"run": run}).text)
        assert not [text for text in responses if secret in text]
        assert "secret" in responses[0]


def test_columns_with_different_secrets_in_their_names_stay_apart(client):
    first_name, second_name = ("hf_" + letter * 34 for letter in "bc")
    document = send(client, f"step,{first_name},{second_name}\n1,0.25,0.5\n2,0.75,1.5\n").json()
    columns = [(column["column"], column["metric"]) for column in document["report"]["columns"]]
    assert columns == [("[secret]", "_secret_"), ("[secret] 2", "_secret_2")]
    lines = client.get(f"/api/v1/runs/{document['run']}/metrics.csv").text.splitlines()
    assert lines[1:] == ["1,0.25,0.5", "2,0.75,1.5"]


def test_viewers_and_strangers_cannot_import(viewer, stranger):
    assert send(viewer).status_code == 403
    assert send(stranger).status_code == 401


def test_a_body_of_another_content_type_is_refused(client):
    assert send(client, headers={"Content-Type": "multipart/form-data"}).status_code == 415


@pytest.mark.parametrize("database", ["sqlite_url", "postgres_url"])
def test_the_command_imports_into_either_database(request, settings, monkeypatch, tmp_path, capsys, database):
    url = request.getfixturevalue(database)
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setenv("STATE_DIR", str(settings.state_dir))
    log = tmp_path / "old.csv"
    log.write_text(CSV_LOG)
    assert main(["import", str(log), "--dry-run"]) == 0
    assert "dry run: nothing is stored" in capsys.readouterr().out
    assert main(["import", str(log), "--name", "first", "--experiment", "old", "--seed", "4"]) == 0
    assert "CSV with a header: 6 values of 2 metrics, steps 1 to 3" in capsys.readouterr().out
    engine = open_engine(url, pool_size=1)
    with open_sessions(engine)() as session:
        [run] = session.scalars(select(Run))
        assert (run.name, run.seed, run.origin, run.last_step) == ("first", 4, "csv", 3)
        assert session.scalar(select(func.sum(MetricBlock.points))) == 6
    engine.dispose()
    assert main(["import", str(tmp_path / "none.csv")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_a_worker_never_claims_an_imported_run(client):
    import_run(client)
    Reconciler(client.app.state.lab.settings, client.app.state.lab.sessions)
    assert client.get("/api/v1/queue").json()["items"] == []
