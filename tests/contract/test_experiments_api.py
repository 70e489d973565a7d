"""Tests of launching and evaluating experiments over HTTP, on both databases."""

import json
import threading

import pytest
from sqlalchemy import func, select

from backend.config import sources
from backend.config.jsonl import index_dataset
from backend.config.presets import PRESETS
from backend.experiments.schemas import LaunchedExperiment
from backend.storage.models import Experiment, Run
from tests.factories import make_run

BODY = {
    "name": "clip-higher",
    "base": {"steps": 20},
    "variants": [{"name": "GRPO", "preset": "grpo"}, {"name": "DAPO", "preset": "dapo"}],
    "seeds": [0, 1],
}


def launch(client, body, key=""):
    """Post a launch as Python writes JSON, with infinities and escaped lone surrogates."""
    headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
    return client.post("/api/v1/experiments", content=json.dumps(body), headers=headers)


def count(database, table):
    with database.sessions() as session:
        return session.scalar(select(func.count()).select_from(table))


def test_variants_times_seeds_are_queued_by_seed(client, database):
    response = launch(client, BODY)
    assert response.status_code == 201
    LaunchedExperiment.model_validate(response.json())
    runs = response.json()["runs"]
    assert [(run["variant"], run["seed"], run["status"]) for run in runs] == [
        ("GRPO", 0, "queued"),
        ("DAPO", 0, "queued"),
        ("GRPO", 1, "queued"),
        ("DAPO", 1, "queued"),
    ]
    assert len({run["name"] for run in runs}) == 4
    with database.sessions() as session:
        config = session.get_one(Run, runs[3]["id"]).config
    assert (config["steps"], config["seed"], config["preset"]) == (20, 1, "dapo")


def test_the_same_key_and_body_get_the_same_response_and_another_body_is_refused(client, database):
    first_response, second_response = launch(client, BODY, "k1"), launch(client, BODY, "k1")
    assert (first_response.status_code, second_response.status_code) == (201, 201)
    assert first_response.json() == second_response.json()
    other_answer = launch(client, BODY | {"name": "other"}, "k1")
    assert other_answer.status_code == 409
    assert "Idempotency-Key" in other_answer.json()["detail"]
    assert count(database, Run) == 4


def test_the_same_key_sent_concurrently_launches_once(client, database):
    responses = []
    threads = [
        threading.Thread(target=lambda: responses.append(launch(client, BODY, "k2"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {response.status_code for response in responses} == {201}
    assert len({response.text for response in responses}) == 1
    assert count(database, Experiment) == 1


def test_others_can_write_while_a_launch_is_checked(client, database, settings, monkeypatch):
    settings.datasets_dir.mkdir()
    rows = [json.dumps({"prompt": f"{n}+1=?", "answer": str(n + 1)}) for n in range(20)]
    (settings.datasets_dir / "rows.jsonl").write_text("\n".join(rows))
    with database.sessions.begin() as session:
        run = make_run(session)
    pages = []

    def renaming(path, columns):
        pages.append(client.patch(f"/api/v1/runs/{run.id}", json={"name": f"renamed {len(pages)}"}))
        return index_dataset(path, columns)

    monkeypatch.setattr(sources, "index_dataset", renaming)
    problems = [{"name": "file", "path": "rows.jsonl"}]
    assert launch(client, BODY | {"base": {"problems": problems}}, "k3").status_code == 201
    sources._cached_index.cache_clear()
    clone = client.post(f"/api/v1/runs/{run.id}/clone", json={"changes": {"problems": problems}})
    assert clone.status_code == 202, clone.text
    assert [page.status_code for page in pages] == [200, 200]


@pytest.mark.parametrize(
    ("changes", "path", "phrase"),
    [
        ({"variants": [{"name": "a"}, {"name": "b", "preset": "no"}]}, "variants.1.preset", '"no"'),
        ({"base": {"steps": -3}}, "variants.0.steps", "-3"),
        ({"base": {"polcy": {}}}, "variants.0.polcy", "no such field"),
        ({"base": {"problems": [{"name": "chess"}]}}, "variants.0.problems.0", "chess"),
        ({"base": {"policy": {"name": "owner/model"}}}, "variants.0.policy.name", "HF_ONLINE"),
        (
            {"base": {"policy": {"revision": "hf_" + "a" * 40}}},
            "base.policy.revision",
            "looks like a secret",
        ),
        ({"variants": []}, "variants", "at least 1"),
        ({"variants": [{"name": "a"}, {"name": "a"}]}, "variants", "must be unique"),
        ({"variants": [{"preset": "grpo"}]}, "variants", "needs a name"),
        ({"seeds": [1, 1]}, "seeds", "must be unique"),
        ({"seeds": [-1]}, "seeds.0", "-1"),
        ({"seeds": []}, "seeds", "at least 1"),
        ({"seeds": list(range(100)), "variants": [{"name": str(n)} for n in range(6)]}, "seeds", "600 runs"),
        ({"base": {"steps": 10**7}, "seeds": list(range(6))}, "seeds", "make 120,000,000 steps in total"),
        ({"base": {"optimizer": {"lr": float("inf")}}}, "base.optimizer.lr", "got inf"),
        ({"base": {"steps": 2**70}}, "base.steps", "less than 2^63"),
        ({"base": {"policy": {"name": "\ud800"}}}, "base.policy.name", "an unpaired surrogate"),
        ({"priority": -(2**80)}, "priority", "less than 2^63"),
        ({"name": ""}, "name", "at least 1"),
        ({"extra": 1}, "extra", "no such field"),
    ],
)
def test_an_invalid_launch_is_refused_at_its_field_and_creates_nothing(
    client, database, changes, path, phrase
):
    response = launch(client, BODY | changes)
    assert response.status_code == 422, response.text
    errors = {error["path"]: error["message"] for error in response.json()["errors"]}
    assert phrase in errors[path]
    assert (count(database, Experiment), count(database, Run)) == (0, 0)


def test_validation_returns_config_formula_estimates_and_warnings(client, database):
    with database.sessions.begin() as session:
        summary = {"step": 5, "last": {"time/step_seconds": 0.5}, "best": {}}
        make_run(session, last_step=5, summary=summary)
    body = {"base": {"steps": 10}, "variant": {"name": "x", "preset": "dr_grpo"}, "seed": 4}
    document = client.post("/api/v1/validate", json=body).json()
    assert (document["config"]["steps"], document["config"]["seed"]) == (10, 4)
    assert document["formula"]
    legend = {entry["symbol"]: entry for entry in document["formula_legend"]}
    assert legend["Rᵢ"]["meaning"] == "reward of completion i"
    assert legend["Rᵢ"]["mathml"].endswith("<msub><mi>R</mi><mi>i</mi></msub></math>")
    assert document["estimates"]["seconds"] == pytest.approx(5.0)
    for slower in (
        {"base": {"sampling": {"precision": "int8"}}},
        {"variant": {"name": "x", "preset": "dapo"}},
    ):
        assert client.post("/api/v1/validate", json=slower).json()["estimates"]["seconds"] is None
    assert client.post("/api/v1/validate", json={"steps": 7, "seed": 2}).json()["config"]["seed"] == 2


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"base": {"optimizer": {"lr": 1e400}}}', "optimizer.lr"),
        ('{"variant": {"policy": {"name": "\\ud800"}}}', "policy.name"),
        ('{"steps": 99999999999999999999}', "steps"),
        ('{"stop_rules": [{"type": "wall_time", "seconds": NaN}]}', "stop_rules.0.seconds"),
    ],
)
def test_an_invalid_number_or_text_has_one_error_at_its_field(client, text, path):
    response = client.post("/api/v1/validate", content=text, headers={"Content-Type": "application/json"})
    assert response.status_code == 422, response.text
    (error,) = response.json()["errors"]
    assert error["path"] == path


def test_every_preset_has_estimates_before_and_after_the_first_run(client, database):
    def estimates(preset):
        body = {"base": {"steps": 10}, "variant": {"name": "x", "preset": preset}}
        return client.post("/api/v1/validate", json=body).json()["estimates"]

    first_estimates = {preset: estimates(preset) for preset in PRESETS}
    with database.sessions.begin() as session:
        summary = {"step": 5, "last": {"time/step_seconds": 0.5}, "best": {}}
        make_run(session, last_step=5, summary=summary, config={"sampling": {"group_size": 4}})
    for preset, first in first_estimates.items():
        assert 0 < first["seconds_low"] < first["seconds_high"], preset
        assert (first["seconds"], first["like_runs"], first["scaled_runs"]) == (None, 0, 0), preset
        assert first["tokens_at_most"] > 0, preset
        assert first["disk_bytes"] > 0, preset
        scaled = estimates(preset)
        assert (scaled["like_runs"], scaled["scaled_runs"]) == (0, 1), preset
        assert 0 < scaled["seconds_low"] < scaled["seconds_high"], preset
        assert scaled["seconds_high"] / scaled["seconds_low"] < first["seconds_high"] / first["seconds_low"]


def test_experiments_are_found_by_name_or_variant_with_their_run_counts(client, database):
    clip = launch(client, BODY).json()
    launch(client, BODY | {"name": "100% other", "variants": [{"name": "RLOO", "preset": "rloo"}]})
    with database.sessions.begin() as session:
        best, worse, trashed, _ = [session.get_one(Run, run["id"]) for run in clip["runs"]]
        best.status, best.verdict, best.sort_eval_accuracy = "finished", "healthy", 0.5
        worse.status, worse.verdict, worse.sort_eval_accuracy = "finished", "collapsed", 0.25
        trashed.deleted_at, trashed.sort_eval_accuracy = 1.0, 0.75
        best.finished_at = 2_000_000_000.0

    def find_experiments(query):
        return client.get("/api/v1/experiments", params={"query": query}).json()

    (item,) = find_experiments("DAPO")["items"]
    assert item["id"] == clip["id"]
    assert item["statuses"] == {"finished": 2, "queued": 1}
    assert item["verdicts"] == {"healthy": 1, "collapsed": 1}
    assert (item["runs"], item["best_accuracy"], item["kind"]) == (3, 0.5, "variants")
    assert item["active_at"] == "2033-05-18T03:33:20.000Z"
    assert [match["name"] for match in find_experiments("CLIP")["items"]] == ["clip-higher"]
    assert [match["name"] for match in find_experiments("0% o")["items"]] == ["100% other"]
    assert find_experiments("_")["items"] == []
    first = client.get("/api/v1/experiments", params={"limit": 1}).json()
    second = client.get("/api/v1/experiments", params={"limit": 1, "cursor": first["next"]}).json()
    assert (first["total"], second["total"], second["next"]) == (2, None, None)
