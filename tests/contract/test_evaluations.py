"""Tests of evaluations over HTTP: requests, and results by step and suite, on both databases."""

import pytest
from sqlalchemy import update

from backend.base.errors import InvalidConfig
from backend.config.merge import resolve
from backend.metrics.store import write_points
from backend.metrics.summary import Summary
from backend.storage.models import Checkpoint, Run
from tests.factories import make_attempt, make_run

SUITE = {"name": "pairs", "problem": {"name": "sums", "operands": 2}, "every": 10, "steps": [5]}
METRIC_PREFIX = "eval/pairs"


@pytest.fixture
def new_run(database):
    """A function that makes a run with these metrics by step, and a checkpoint of step 10."""

    def make(points, **fields):
        config = {"evaluation": {"suites": [SUITE]}, "checkpointing": {"best_by": "pairs"}}
        with database.sessions.begin() as session:
            run = make_run(session, config=config | fields.pop("config", {}), status="finished", **fields)
            make_attempt(session, run, 1)
            last = {}
            for step, values in points.items():
                write_points(session, run.id, 1, [(step, values)])
                last |= values
            summary = Summary()
            summary.add_step(max(points, default=0), last)
            session.execute(update(Run).where(Run.id == run.id).values(summary=summary.document()))
            if run.steps:
                row = {"run_id": run.id, "attempt": 1, "path": "s10", "sha256": "0" * 64, "manifest": {}}
                session.add(Checkpoint(**row, step=10, bytes_total=1))
            return run.id

    return make


def values(accuracy):
    return {
        f"{METRIC_PREFIX}/accuracy": accuracy,
        f"{METRIC_PREFIX}/accuracy_low": accuracy - 0.1,
        f"{METRIC_PREFIX}/accuracy_high": accuracy + 0.1,
        f"{METRIC_PREFIX}/pass_at_4": 0.9,
    }


def results(client, *runs):
    response = client.get("/api/v1/evaluations", params={"runs": ",".join(runs)})
    assert response.status_code == 200, response.text
    return response.json()


def test_suites_and_the_held_out_set_are_listed_by_step(client, new_run):
    run = new_run({0: values(0.25) | {"eval/accuracy": 0.5, "eval/accuracy/math": 0.5}, 10: values(0.5)})
    items = results(client, run)["items"]
    assert [(item["suite"], item["step"]) for item in items] == [("", 0), ("pairs", 0), ("pairs", 10)]
    assert items[0]["values"] == {"accuracy": 0.5}
    assert items[2]["values"] == {"accuracy": 0.5, "pass_at_4": 0.9}
    assert items[2]["intervals"] == {"accuracy": [0.4, 0.6]}
    assert [item["is_best"] for item in items] == [True, False, True]
    assert [item["has_checkpoint"] for item in items] == [False, False, True]
    assert (items[2]["source"], items[2]["source_step"], items[2]["source_kind"]) == (run, 10, METRIC_PREFIX)


def test_a_checkpoint_is_evaluated_on_suites_by_name_or_by_content(client, new_run):
    path = f"/api/v1/runs/{new_run({})}/evaluations"
    triples = {"name": "triples", "problem": {"name": "sums", "operands": 3}, "n": 2}
    response = client.post(path, json={"held_out": False, "suites": ["pairs", triples]})
    assert response.status_code == 202, response.text
    config = response.json()["config"]
    first, second = config["evaluation"]["suites"]
    assert config["evaluation"]["every"] == 0
    assert (first["name"], first["every"], first["steps"], first["at_end"]) == ("pairs", 0, [], True)
    assert (second["name"], second["n"]) == ("triples", 2)
    assert config["checkpointing"]["best_by"] == ""


@pytest.mark.parametrize("deed", ["evaluations", "check"])
def test_a_checkpoint_of_several_nodes_is_evaluated_by_one_process(client, new_run, deed):
    run = new_run({}, config={"resources": {"nodes": 2, "devices": 4}}, nodes=2, devices=4)
    response = client.post(f"/api/v1/runs/{run}/{deed}")
    assert response.status_code == 202, response.text
    resources = response.json()["config"]["resources"]
    assert (resources["devices"], resources["nodes"]) == (1, 1)


@pytest.mark.parametrize(
    ("body", "path", "phrase"),
    [
        ({"held_out": False}, "suites", "nothing would be evaluated"),
        ({"suites": ["none"]}, "suites.0", "has the suites: pairs"),
        ({"suites": [{"name": "x", "n": 0}]}, "evaluation.suites.0.n", "at least 1"),
        ({"suites": [{"name": "../x"}]}, "evaluation.suites.0.name", "match"),
        ({"suites": ["pairs", "pairs"]}, "evaluation.suites.1.name", "two suites"),
        ({"suites": [{}] * 17}, "suites", "at most 16"),
        ({"suites": [7]}, "suites.0", ""),
        (
            {"suites": [{"name": "x", "problem": {"name": "file", "path": "../../etc/passwd"}}]},
            "evaluation.suites.0.problem.path",
            "a path inside DATASETS_DIR",
        ),
        (
            {"suites": [{"name": "x", "problem": {"name": "hub", "dataset": "a/b"}}]},
            "evaluation.suites.0.problem.dataset",
            "HF_ONLINE is off",
        ),
        (
            {"suites": [{"name": "x", "max_new_tokens": 100_000}]},
            "evaluation.suites.0.max_new_tokens",
            "the context of tiny",
        ),
    ],
)
def test_a_suite_that_cannot_be_evaluated_is_refused_at_its_field(client, new_run, body, path, phrase):
    response = client.post(f"/api/v1/runs/{new_run({})}/evaluations", json=body)
    assert response.status_code == 422
    errors = response.json()["errors"]
    assert any(error["path"].startswith(path) and phrase in error["message"] for error in errors), errors


@pytest.mark.parametrize(
    ("suites", "changes", "path"),
    [
        ([{"name": "accuracy"}], {}, "evaluation.suites.0.name"),
        ([{"temperature": 0, "n": 4}], {}, "evaluation.suites.0.n"),
        ([{"at_end": False}], {}, "evaluation.suites.0.every"),
        ([{"steps": [999]}], {}, "evaluation.suites.0.steps"),
        ([{"rows": "all"}], {}, "evaluation.suites.0.rows"),
        ([{"prompts": 100_000, "n": 256}], {}, "evaluation.suites.0.prompts"),
        ([{}], {"checkpointing": {"best_by": "other"}}, "checkpointing.best_by"),
        ([{"name": f"s{number}"} for number in range(17)], {}, "evaluation.suites"),
        (
            [{"problem": {"name": "file", "path": "a.jsonl"}, "rows": "all"}],
            {"problems": [{"name": "file", "path": "a.jsonl"}]},
            "evaluation.suites.0.rows",
        ),
    ],
)
def test_invalid_suites_are_refused(suites, changes, path):
    with pytest.raises(InvalidConfig) as error_info:
        resolve({"evaluation": {"suites": suites}} | changes)
    assert path in [error.path for error in error_info.value.errors]
