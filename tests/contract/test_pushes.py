"""Tests of pushed runs over HTTP: numbered records, separate writers and hostile bodies."""

import gzip
import json
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select, update

import backend.exchange.imports.store
from backend.analysis.diagnosis.store import find_unjudged_runs, judge_runs
from backend.base.redaction import redact_document
from backend.http.auth.tokens import writer_token
from backend.http.limits import MAX_PUSH_BYTES
from backend.rollouts.foreign_metrics import compute_text_points
from backend.runs.pushed import SILENT_SECONDS
from backend.service.maintenance.reconciler import Reconciler
from backend.storage.models import Event, Experiment, Metric, PushSession, RolloutGroup, Run
from tests.api_client import TOKEN
from tests.stored_points import stored_points
from tests.waiting import wait_for

SESSION, OTHER = "a" * 32, "b" * 32
HEADER = {"name": "tiny", "config": {"lr": 1e-6}, "origin": "trl", "steps": 10}


def metrics(step, **values):
    return {"kind": "metrics", "step": step, "values": values}


def completions(step, *texts, index=0, **columns):
    rows = [{"text": text, "reward": float(n), **columns} for n, text in enumerate(texts)]
    return {"kind": "completions", "step": step, "index": index, "prompt": "1+1=", "completions": rows}


@pytest.fixture
def send(client, settings):
    """A function that posts a batch and returns the response."""

    def sending(records=(), *, key="r", first=1, session=SESSION, run=HEADER, writer="node", token=""):
        body = {"session": session, "first": first, "records": list(records), "run": run}
        headers = {
            "Authorization": f"Bearer {token or writer_token(settings, writer)}",
            "Content-Type": "application/json",
        }
        return client.post(f"/api/v1/pushes/{key}", content=json.dumps(body), headers=headers)

    return sending


def count(client, table):
    with client.app.state.lab.sessions() as session:
        return session.scalar(select(func.count()).select_from(table))


def only_run(client):
    (run,) = client.get("/api/v1/runs").json()["items"]
    return client.get(f"/api/v1/runs/{run['id']}").json()


def fetch_values(client, run, metric):
    document = client.get("/api/v1/series", params={"runs": run["id"], "metrics": metric}).json()
    (series,) = document["series"]
    return dict(zip(series["steps"], series["values"], strict=True)), series["non_finite"]


def test_a_pushed_run_is_live_and_has_curves_completions_and_a_config(client, send):
    response = send([
        metrics(1, reward=0.5, kl="NaN", **{"train/grad_norm": 2, "weird <b>name": 1, "global_step": 1}),
        completions(1, "two", "2\ud83d\0", advantage=-0.5, tokens=3, rewards={"f": "-Infinity"}),
    ])  # fmt: skip
    assert response.status_code == 200, response.text
    run = only_run(client)
    assert response.json() == {"run": run["id"], "status": "running", "stop": False, "stored": 2}
    assert (run["name"], run["status"], run["origin"], run["writer"]) == ("tiny", "running", "trl", "node")
    assert (run["last_step"], run["steps"], run["config"]) == (1, 10, {"lr": 1e-6})
    assert run["experiment_name"] == "pushed runs"
    assert run["seen_at"]
    last = {
        name: metric_value
        for name, metric_value in run["summary"]["last"].items()
        if not name.startswith("text/")
    }
    assert last == {
        "reward/mean": 0.5, "kl/k3": "NaN", "optim/grad_norm": 2.0, "weird_b_name": 1.0,
    }  # fmt: skip
    assert fetch_values(client, run, "kl/k3")[1][0]["value"] == "NaN"
    (group,) = client.get("/api/v1/rollouts", params={"run": run["id"], "step": 1}).json()["items"]
    first, second = group["completions"]
    assert (group["prompt"], first["text"], second["text"]) == ("1+1=", "two", "2\ud83d\0")
    assert (second["reward"], second["advantage"], second["tokens"]) == (1.0, -0.5, 3)
    assert second["rewards"] == {"f": "-Infinity"}


def test_two_long_names_with_a_common_prefix_stay_two_metrics(client, send):
    names = [f"rewards/{'a' * 125}/{kind}" for kind in ("mean", "std")]
    assert send([metrics(1, **dict(zip(names, (0.5, 0.1), strict=True)))]).status_code == 200
    assert sorted(only_run(client)["summary"]["last"].values()) == [0.1, 0.5]


def test_a_repeated_batch_changes_nothing_and_an_overlap_adds_its_new_records(client, send):
    first = [metrics(1, reward=1), completions(1, "a", "b")]
    for _ in range(3):
        assert send(first).json()["stored"] == 2
    points, groups, events = (count(client, table) for table in (Metric, RolloutGroup, Event))
    assert (points, groups) == (1 + 7, 1)  # the reward and seven text metrics
    changed_records = [metrics(1, reward=9), completions(1, "x"), metrics(2, reward=2)]
    assert send(changed_records, run=None).json()["stored"] == 3
    assert fetch_values(client, only_run(client), "reward/mean")[0] == {1: 1.0, 2: 2.0}
    assert (count(client, RolloutGroup), count(client, Event)) == (1, events)


def test_pushed_completions_get_repetition_format_and_script_metrics(client, send):
    loop, box = "abc" * 200, r"\boxed{2}"
    send([completions(1, box, "<think>", finish_reason="stop"), completions(1, loop, "2", index=1)])
    run = only_run(client)
    assert fetch_values(client, run, "text/structure_ok")[0] == {1: 0.25}
    assert fetch_values(client, run, "text/structure_broken")[0] == {1: 0.25}
    assert fetch_values(client, run, "text/repetition")[0][1] == pytest.approx((1 - 3 / 505) / 4)
    send([completions(1, box, box, index=2), completions(2, "<think>")], first=3)
    assert fetch_values(client, run, "text/structure_ok")[0] == {1: 0.5, 2: 0.0}
    # unknown whether it was truncated
    assert fetch_values(client, run, "text/structure_broken")[0] == {1: 1 / 6, 2: 0.0}
    send([completions(1, "3", "3", index=2)], first=5)
    assert fetch_values(client, run, "text/structure_ok")[0] == {1: 1 / 6, 2: 0.0}


def test_two_processes_that_push_one_step_concurrently_are_combined(client, send, monkeypatch):
    """The second one's completions arrive while those of the first are read."""

    def compute_after_other_push(session, run_id, written_steps):
        points_of_texts = compute_text_points(session, run_id, written_steps)
        monkeypatch.setattr("backend.exchange.push.store.compute_text_points", compute_text_points)
        assert send([completions(1, "2", "2", index=1)], session=OTHER).is_success
        return points_of_texts

    monkeypatch.setattr("backend.exchange.push.store.compute_text_points", compute_after_other_push)
    assert send([completions(1, r"\boxed{2}", r"\boxed{2}"), completions(2, "2")]).is_success
    assert fetch_values(client, only_run(client), "text/structure_ok")[0] == {1: 0.5, 2: 0.0}


def test_text_metrics_of_a_trainer_are_kept_for_any_number_of_batches(client, send):
    send([metrics(1, **{"text/repetition": 0.25}), completions(1, "abc" * 200)])
    send([completions(1, r"\boxed{2}", index=1)], first=3)
    run = only_run(client)
    assert fetch_values(client, run, "text/repetition")[0] == {1: 0.25}
    assert fetch_values(client, run, "text/structure_ok")[0] == {1: 0.5}
    send([metrics(1, **{"text/structure_ok": 0.75}), completions(1, "3", index=2)], first=4)
    send([completions(1, "4", index=3)], first=6)
    assert fetch_values(client, run, "text/repetition")[0] == {1: 0.25}
    assert fetch_values(client, run, "text/structure_ok")[0] == {1: 0.75}
    assert run["summary"]["last"]["text/repetition"] == 0.25


def test_missing_records_are_requested(client, send):
    send([metrics(1, reward=1)])
    response = send([metrics(5, reward=5)], first=5)
    assert (response.status_code, response.json()["detail"]) == (
        409, "records 2 to 4 are missing: send them first",
    )  # fmt: skip
    assert count(client, Metric) == 1


def test_a_repeated_step_keeps_the_labels_of_completions_with_unchanged_text(client, send):
    send([completions(3, "a\ud83d", "b", "c")])
    run = only_run(client)
    (group,) = client.get("/api/v1/rollouts", params={"run": run["id"]}).json()["items"]
    for completion in group["completions"]:
        url = f"/api/v1/rollouts/{completion['id']}/labels"
        assert client.post(url, json={"label": "good", "note": "why"}).status_code == 200
    first = client.get("/api/v1/rollouts/labels", params={"runs": run["id"]}).json()["items"]
    assert first == [{"label": "good", "completions": 3}]
    send([completions(3, "a\ud83d", "B")], session=OTHER)
    labelled_completions = client.get(
        "/api/v1/rollouts/search", params={"runs": run["id"], "label": "good"}
    ).json()["items"]
    assert [
        (completion["position"], completion["labels"][0]["note"], completion["labels"][0]["version"])
        for completion in labelled_completions
    ] == [(0, "why", 1)]


def test_a_repeated_step_replaces_values_and_completions_as_in_an_import(client, send):
    send([metrics(1, reward=1, kl=1), metrics(3, reward=3), completions(3, "a", "b", "c")])
    response = send([metrics(1, reward=7), completions(3, "z")], session=OTHER)
    assert response.json()["stored"] == 2
    run = only_run(client)
    assert fetch_values(client, run, "reward/mean")[0] == {1: 7.0, 3: 3.0}
    assert fetch_values(client, run, "kl/k3")[0] == {1: 1.0}
    (group,) = client.get("/api/v1/rollouts", params={"run": run["id"]}).json()["items"]
    assert [completion["text"] for completion in group["completions"]] == ["z"]
    assert (run["last_step"], run["summary"]["best"]["reward/mean"]) == (3, {"value": 7.0, "step": 1})


def test_a_run_ends_when_its_client_finishes_and_continues_when_its_script_restarts(client, send):
    send([metrics(1, reward=1), {"kind": "finish", "status": "failed", "reason": "OOM hf_" + "x" * 34}])
    run = only_run(client)
    assert (run["status"], run["reason"]) == ("failed", "OOM [secret]")
    assert run["finished_at"]
    assert run["attempts"][0]["outcome"] == "OOM [secret]"
    assert send([metrics(2, reward=2)], session=OTHER).json()["status"] == "running"
    assert only_run(client)["finished_at"] is None
    send([{"kind": "finish", "status": "finished"}], session=OTHER, first=2)
    assert only_run(client)["status"] == "finished"


def test_the_stop_button_reaches_the_client_and_can_be_undone(client, send, settings):
    send([metrics(1, reward=1)])
    run = only_run(client)["id"]
    assert client.post(f"/api/v1/runs/{run}/stop").status_code == 202
    assert send(first=2).json()["stop"] is True
    headers = {"Authorization": f"Bearer {writer_token(settings, 'node')}"}
    assert client.get("/api/v1/pushes/r", headers=headers).json()["stop"] is True
    assert client.post(f"/api/v1/runs/{run}/resume").status_code == 202
    assert send(first=2).json()["stop"] is False
    for verb in ("pause", "retry", "clone", "fork", "evaluations"):
        response = client.post(f"/api/v1/runs/{run}/{verb}", json={"step": 1} if verb == "fork" else {})
        assert response.status_code == 409
        assert "is pushed by TRL" in response.json()["detail"]


def test_a_silent_run_stays_until_it_is_stopped_and_then_ends_immediately(client, send, settings):
    send([metrics(1, reward=1)])
    run = only_run(client)["id"]
    lab = client.app.state.lab
    reconciler = Reconciler(settings.model_copy(update={"lease_seconds": 0.6}), lab.sessions)
    with lab.sessions.begin() as session:
        session.execute(update(Run).values(progress_at=Run.progress_at - SILENT_SECONDS - 1))
    for _ in range(3):
        reconciler.run_once()
    assert only_run(client)["status"] == "running"
    client.post(f"/api/v1/runs/{run}/stop")
    assert only_run(client)["status"] == "stopped"
    late_response = send([metrics(2, reward=2)], first=2)  # it was only without a network
    assert (late_response.json()["status"], late_response.json()["stop"]) == ("stopped", True)
    assert fetch_values(client, only_run(client), "reward/mean")[0] == {1: 1.0, 2: 2.0}
    assert client.delete(f"/api/v1/runs/{run}").status_code == 200
    assert client.delete(f"/api/v1/runs/{run}?forever=true").status_code == 202
    assert send([metrics(3, reward=3)], first=3, run=None).status_code == 410

    def is_deleted():
        reconciler.run_once()
        return not count(client, Run)

    wait_for(is_deleted, "the run is still there")
    assert count(client, PushSession) == count(client, Metric) == 0
    assert send([metrics(3, reward=3)]).status_code == 200


def test_a_writer_sees_only_its_own_runs(client, send, settings):
    send([metrics(1, reward=1)], writer="one")
    send([metrics(1, reward=2)], writer="two")
    send([metrics(1, reward=3)], token=TOKEN)
    runs = client.get("/api/v1/runs").json()["items"]
    reward_by_writer = {run["writer"]: run["summary"]["last"]["reward/mean"] for run in runs}
    assert reward_by_writer == {"one": 1.0, "two": 2.0, "": 3.0}
    assert send(run=None, writer="three").status_code == 404
    headers = {"Authorization": f"Bearer {writer_token(settings, 'one')}"}
    for run in runs:
        assert client.get(f"/api/v1/pushes/{run['id']}", headers=headers).status_code == 404


def test_the_runs_of_a_writer_are_limited_without_affecting_others(client, send, monkeypatch):
    monkeypatch.setattr("backend.exchange.push.store.MAX_RUNS", 2)
    assert [send(key=key).status_code for key in ("a", "b", "b")] == [200, 200, 200]
    rejected_response = send(key="c")
    (error,) = rejected_response.json()["errors"]
    assert (rejected_response.status_code, error["path"]) == (422, "run")
    assert error["message"].startswith("the writer node has 2 runs, as many as it may")
    assert send(key="c", writer="other").status_code == 200
    assert [send(key=key, token=TOKEN).status_code for key in "pqr"] == [200, 200, 200]
    assert count(client, Run) == 6


def test_too_many_completions_in_a_request_are_refused(send):
    response = send([completions(1, *[""] * 1000, index=index) for index in range(21)])
    assert response.status_code == 422
    assert "expected at most 20,000 completions, got 21,000" in response.json()["errors"][0]["message"]


def test_a_run_in_the_trash_ends_immediately_and_accepts_nothing_until_restored(client, send, settings):
    send([metrics(1, reward=1)])
    run = only_run(client)["id"]
    assert client.delete(f"/api/v1/runs/{run}").json()["status"] == "stopped"
    headers = {"Authorization": f"Bearer {writer_token(settings, 'node')}"}
    assert client.get("/api/v1/pushes/r", headers=headers).status_code == 410
    for session, first in ((SESSION, 2), (OTHER, 1)):
        response = send([metrics(2, reward=2)], session=session, first=first)
        assert response.status_code == 410
        assert "this run is in the trash" in response.json()["detail"]
    with client.app.state.lab.sessions() as session:
        assert [point.value for point in stored_points(session, run)] == [1.0]
    client.post(f"/api/v1/runs/{run}/restore")
    assert send([metrics(2, reward=2)], first=2).json() == {
        "run": run, "status": "stopped", "stop": True, "stored": 2,
    }  # fmt: skip
    assert send([metrics(3, reward=3)], session=OTHER).json()["status"] == "running"
    client.delete(f"/api/v1/runs/{run}")
    assert client.delete(f"/api/v1/runs/{run}?forever=true").status_code == 202
    response = send([metrics(4, reward=4)], first=3)
    assert (response.status_code, response.json()["detail"]) == (
        410, "this run was deleted permanently",
    )  # fmt: skip


def test_a_second_stop_ends_a_run_whose_client_does_not_obey(client, send):
    send([metrics(1, reward=1)])
    run = only_run(client)["id"]
    for status in ("running", "stopped"):
        assert client.post(f"/api/v1/runs/{run}/stop").json()["status"] == status
    document = send([metrics(2, reward=2)], first=2).json()
    assert (document["status"], document["stop"], document["stored"]) == ("stopped", True, 2)
    assert send([metrics(3, reward=3)], session=OTHER).json()["status"] == "running"


NESTED_CONFIG = {}
for _ in range(200):
    NESTED_CONFIG = {"a": NESTED_CONFIG}
BAD_RECORDS = {
    "a negative step": metrics(-1, reward=1),
    "a step of 2^63": metrics(2**63, reward=1),
    "a step that is a fraction": metrics(1.5, reward=1),
    "a step that is true": metrics(True, reward=1),
    "a value that is text": metrics(1, reward="high"),
    "a value that is true": metrics(1, reward=True),
    "a value of 400 digits": metrics(1, reward=10**400),
    "a name without end": {"kind": "metrics", "step": 1, "values": {"x" * 513: 1}},
    "an unknown kind": {"kind": "drop table", "step": 1},
    "no completion": {"kind": "completions", "step": 1, "index": 0, "prompt": "", "completions": []},
    "a prompt that is a list": {**completions(1, "a"), "prompt": ["x"]},
    "a field too many": {**metrics(1, reward=1), "run_id": "other"},
    "an end that there is not": {"kind": "finish", "status": "queued"},
    "no object": 3,
}


@pytest.mark.parametrize("record", BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_a_bad_record_is_refused_in_one_sentence_with_its_whole_batch(client, send, record):
    response = send([metrics(1, reward=1), record])
    assert response.status_code == 422, response.text
    assert len(response.json()["errors"]) >= 1
    assert count(client, Run) == count(client, Metric) == 0


def test_an_unstorable_config_is_dropped_with_a_message(client, send):
    secret = "hf_" + "x" * 34
    head = {**HEADER, "name": f"<script>{secret}", "config": {"deep": NESTED_CONFIG, "token": secret}}
    assert send(run=head).status_code == 200
    run = only_run(client)
    assert (run["name"], run["config"]) == ("<script>[secret]", {})
    events = client.get(f"/api/v1/runs/{run['id']}/events").json()["items"]
    assert any("config is left out" in event["message"] for event in events)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ('{"a":' * 700 + "1" + "}" * 700, "is nested deeper than 50 levels"),
        ('{"a":' + "[" * 700 + "]" * 700 + "}", "is nested deeper than 50 levels"),
        (json.dumps({f"k{n}": [[]] for n in range(60_000)}), "bytes; at most 262,144 are kept"),
        (json.dumps({"x": "\ud83d" * 60_000}), "contains NUL or an unpaired surrogate"),
        (json.dumps({"x": 10**30}), "must be less than 2^63"),
    ],
)
def test_a_config_is_measured_before_it_is_searched(client, settings, config, reason, monkeypatch):
    redacted_documents = []

    def redacting(document):
        redacted_documents.append(document)
        return redact_document(document)

    monkeypatch.setattr(backend.exchange.imports.store, "redact_document", redacting)
    body = f'{{"session":"{SESSION}","first":1,"records":[],"run":{{"name":"x","config":{config}}}}}'
    assert post_raw(client, settings, body.encode(), "identity").status_code == 200
    run = only_run(client)
    assert run["config"] == {}
    events = client.get(f"/api/v1/runs/{run['id']}/events").json()["items"]
    assert any(reason in event["message"] for event in events)
    assert not redacted_documents or "nested" not in reason
    assert not redacted_documents or "at most" not in reason


def test_a_pushed_secret_is_shown_nowhere(client, send):
    secret = "hf_" + "x" * 34
    head = {"name": secret, "experiment": secret, "variant": secret, "config": {secret: [secret]}}
    group = completions(1, f"it is {secret}", rewards={secret: 1.0})
    group |= {"prompt": secret, "answer": secret}
    values = metrics(1, **{secret: 1, f"rewards/{secret}/mean": 1, "loss": 1})
    finish = {"kind": "finish", "status": "failed", "reason": secret}
    assert send([values, group, finish], run=head).status_code == 200
    run = only_run(client)
    texts = [client.get(f"/api/v1/runs/{run['id']}{path}").text for path in ("", "/events", "/metrics.csv")]
    texts += [client.get(path).text for path in ("/api/v1/runs", "/api/v1/experiments")]
    for path in ("", "/prompts", "/counts"):
        texts.append(client.get(f"/api/v1/rollouts{path}", params={"run": run["id"]}).text)
    assert not [text for text in texts if secret in text]
    assert {"_secret_", "loss/total"} <= run["summary"]["last"].keys()
    (item,) = client.get("/api/v1/rollouts", params={"run": run["id"]}).json()["items"]
    assert (item["prompt"], item["completions"][0]["text"]) == ("[secret]", "it is [secret]")


def test_more_than_a_thousand_metrics_are_refused_entirely(client, send):
    batches = [metrics(n, **{f"m{n}_{k}": k for k in range(200)}) for n in range(6)]
    response = send(batches)
    assert response.status_code == 422
    assert "1,200 metrics" in response.json()["errors"][0]["message"]
    assert count(client, Metric) == 0


def post_raw(client, settings, content, encoding="gzip", path="/api/v1/pushes/r"):
    headers = {
        "Authorization": f"Bearer {writer_token(settings, 'node')}",
        "Content-Type": "application/json", "Content-Encoding": encoding,
    }  # fmt: skip
    return client.post(path, content=content, headers=headers)


def test_a_body_may_be_compressed_but_not_be_a_bomb(client, settings):
    body = json.dumps({"session": SESSION, "first": 1, "records": [metrics(1, reward=1)], "run": HEADER})
    assert post_raw(client, settings, gzip.compress(body.encode())).status_code == 200
    packed_body = gzip.compress(body.encode())
    for content, encoding, status in (
        (gzip.compress(b" " * (MAX_PUSH_BYTES + 1)), "gzip", 413),
        (b" " * (MAX_PUSH_BYTES + 1), "identity", 413),
        (packed_body[:-9], "gzip", 400),
        (packed_body + b"more", "gzip", 400),
        (body.encode(), "gzip", 400),
        (gzip.compress(b"[" * 100_000), "gzip", 400),
        (gzip.compress(b'{"a":1,"a":2}'), "gzip", 400),
        (gzip.compress(b"\xff"), "gzip", 400),
        (packed_body, "br", 415),
    ):
        response = post_raw(client, settings, content, encoding)
        assert response.status_code == status, (encoding, response.text)
        assert response.json()["detail"]


def test_many_processes_of_one_run_lose_nothing(client, send):
    def session(number):
        name = f"{number:032x}"
        for first in range(1, 5):
            assert send([metrics(number * 10 + first, reward=number)], session=name, first=first).is_success

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(session, range(4)))
    assert count(client, Run) == count(client, Experiment) == 1
    values, _ = fetch_values(client, only_run(client), "reward/mean")
    assert values == {n * 10 + first: float(n) for n in range(4) for first in range(1, 5)}
    assert not any(map(math.isnan, values.values()))


def test_runs_of_a_sweep_that_start_concurrently_join_one_experiment(client, send):
    def push_run(number):
        return send(
            [metrics(1, reward=1)], key=f"r{number}", run={**HEADER, "experiment": "sweep", "seed": number}
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(response.is_success for response in pool.map(push_run, range(4)))
    (experiment,) = client.get("/api/v1/experiments").json()["items"]
    assert experiment["name"] == "sweep"
    assert count(client, Run) == 4


def test_steps_that_are_pushed_again_are_judged_again(client, send):
    """A script that resumes replaces values on which a stored verdict is based."""
    sessions = client.app.state.lab.sessions

    def judge():
        with sessions() as session:
            runs = find_unjudged_runs(session)
        list(judge_runs(sessions, runs))
        return only_run(client)["verdict"]

    assert send([metrics(step, reward=min(1.0, step / 60)) for step in range(100)]).status_code == 200
    assert judge() == "healthy"
    repeated_records = [metrics(step, reward=0.9 if step < 50 else 0.0) for step in range(100)]
    assert send(repeated_records, first=101).status_code == 200
    assert judge() == "collapsed"


def test_late_records_of_an_older_process_are_not_the_latest(client, send):
    send([metrics(step, reward=step) for step in range(1, 6)])
    send([metrics(step, reward=10 * step) for step in range(6, 21)], session=OTHER)
    send([metrics(5, reward=7, **{"eval/accuracy": 0.5}), metrics(6, reward=900)], first=6)
    summary = only_run(client)["summary"]
    assert (summary["step"], summary["last"]["reward/mean"]) == (20, 200.0)
    assert summary["last"]["eval/accuracy"] == 0.5
    assert summary["older"] == {"eval/accuracy": 5}
    assert summary["best"]["reward/mean"] == {"value": 900.0, "step": 6}


def test_the_late_end_of_an_older_process_does_not_end_a_run_that_a_newer_one_pushes(client, send):
    send([metrics(1, reward=1)])
    send([metrics(2, reward=2)], session=OTHER)
    late_response = send(
        [metrics(1, reward=1), {"kind": "finish", "status": "failed", "reason": "OOM"}], first=2
    )
    assert (late_response.json()["status"], late_response.json()["stored"]) == ("running", 3)
    assert send([metrics(3, reward=3)], session=OTHER, first=2).json()["status"] == "running"
    end = [{"kind": "finish", "status": "finished"}]
    assert send(end, session=OTHER, first=3).json()["status"] == "finished"
    assert send([{"kind": "finish", "status": "failed"}], first=4).json()["status"] == "finished"


def test_a_process_that_outlives_a_newer_one_ends_the_run(client, send):
    """This is a trainer whose evaluation logged under the same id, and finished or died."""
    send([metrics(1, reward=1)])
    send([metrics(2, reward=2), {"kind": "finish", "status": "finished"}], session=OTHER)
    with client.app.state.lab.sessions.begin() as session:
        session.execute(update(PushSession).values(heard_at=PushSession.heard_at - SILENT_SECONDS - 1))
    send([metrics(3, reward=3)], first=2)
    end = send([{"kind": "finish", "status": "failed", "reason": "OOM"}], first=3)
    assert end.json()["status"] == "failed"


def test_a_newer_process_may_resume_from_an_earlier_step(client, send):
    send([metrics(step, reward=step) for step in range(1, 6)])
    send([metrics(3, reward=30)], session=OTHER)
    summary = only_run(client)["summary"]
    assert (summary["step"], summary["last"]["reward/mean"]) == (3, 30.0)
