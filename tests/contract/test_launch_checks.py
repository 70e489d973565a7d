"""Tests of checks before launch over HTTP, and the launches that they refuse, on both databases."""

import pytest
from sqlalchemy import update

from backend.storage.models import Checkpoint, Run
from tests.worker.training.test_check_numbers import report

BODY = {"base": {"steps": 20}, "variant": {"name": "G", "preset": "grpo"}}
WRONG_REFERENCE = {"id": "q1", "source": "sums", "prompt": "1+1=?", "answer": "<b>3</b>"}


def check(client, key="", **body):
    headers = {"Idempotency-Key": key} if key else {}
    return client.post("/api/v1/experiments/check", json=BODY | body, headers=headers)


def launch(client, variant=BODY["variant"], **fields):
    body = {"name": "e", "base": BODY["base"], "variants": [variant], "seeds": [0, 1], **fields}
    return client.post("/api/v1/experiments", json=body)


@pytest.fixture
def finish_check(client, database):
    """A function that queues a check, finishes it with this many wrong references, and returns its id."""

    def finish(wrong_count, at):
        run_id = check(client).json()["id"]
        references = {"wrong": wrong_count, "examples": [WRONG_REFERENCE] * min(wrong_count, 1)}
        check_report = report(references=references).model_dump(mode="json")
        updates = {"status": "finished", "finished_at": at, "check_report": check_report}
        with database.sessions.begin() as session:
            session.execute(update(Run).where(Run.id == run_id).values(**updates))
        return run_id

    return finish


def test_a_check_is_a_run_without_steps(client):
    response = check(client)
    assert response.status_code == 202, response.text
    run = response.json()
    assert (run["name"], run["variant"], run["tags"], run["status"]) == (
        "check of G",
        "check",
        ["check"],
        "queued",
    )
    assert (run["is_check"], run["steps"], run["experiment"]) == (True, 0, None)
    assert "check" not in run
    assert run["config"]["evaluation"] == {
        "every": 1,
        "prompts": 64,
        "k": 32,
        "effort": False,
        "suites": [],
    }
    assert launch(client).status_code == 201
    assert client.get("/api/v1/runs").json()["items"][0]["is_check"] is False


@pytest.mark.parametrize(
    ("body", "path", "phrase"),
    [
        ({"base": {"policy": {"name": "gone"}}}, "policy.name", "gone"),
        ({"base": {"problems": [{"name": "file", "path": "gone.jsonl"}]}}, "problems.0.path", "gone.jsonl"),
        ({"base": {"problems": []}}, "problems", "expected at least 1"),
        ({"base": {"rewards": [{"name": "plugin", "entry_point": "gone"}]}}, "rewards.0.entry_point", "gone"),
        ({"prompts": 1}, "prompts", "at least 2"),
        ({"k": 1000}, "k", "at most 256"),
        ({"nothing": 1}, "nothing", "no such field"),
    ],
)
def test_an_impossible_check_is_refused_at_its_field(client, body, path, phrase):
    response = check(client, **body)
    assert response.status_code == 422, response.text
    [error] = response.json()["errors"]
    assert error["path"] == path
    assert phrase in error["message"]


def test_a_launch_is_refused_while_the_latest_check_found_wrong_references(client, database, finish_check):
    first = finish_check(2, at=100.0)
    check_json = client.get(f"/api/v1/runs/{first}").json()["check"]
    assert check_json["references"]["examples"] == [WRONG_REFERENCE]
    response = launch(client)
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert error["path"] == "ignore_check"
    assert error["message"].startswith(
        "is false, but 'check of G' found that the grader calls 2 of 9 reference"
    )
    assert "e.g. '<b>3</b>' to '1+1=?': fix the data or the grader" in error["message"]
    other_rate = {"name": "H", "optimizer": {"lr": 1e-5}, "steps": 7}
    assert launch(client, other_rate).status_code == 422
    assert launch(client, {"name": "H", "problems": [{"name": "sums", "low": 20}]}).status_code == 201
    assert launch(client, ignore_check=True).status_code == 201
    finish_check(0, at=200.0)
    assert launch(client).status_code == 201


def test_clones_and_forks_are_also_refused_and_a_cloned_check_checks_again(client, database, finish_check):
    parent = launch(client).json()["runs"][0]["id"]
    with database.sessions.begin() as session:
        row = {"path": "s000010-a1", "sha256": "0" * 64, "bytes_total": 2, "manifest": {}}
        session.add(Checkpoint(run_id=parent, step=10, attempt=1, **row))
    failed_check = finish_check(1, at=100.0)
    for verb, body in (("clone", {}), ("fork", {"step": 10})):
        rejected_response = client.post(f"/api/v1/runs/{parent}/{verb}", json=body)
        assert [error["path"] for error in rejected_response.json()["errors"]] == ["ignore_check"]
        assert (
            client.post(f"/api/v1/runs/{parent}/{verb}", json=body | {"ignore_check": True}).status_code
            == 202
        )
    clone_response = client.post(f"/api/v1/runs/{failed_check}/clone", json={})
    assert clone_response.status_code == 202
    assert clone_response.json()["is_check"] is True
    evaluation_response = client.post(f"/api/v1/runs/{parent}/evaluations", json={"step": 10, "effort": True})
    assert evaluation_response.json()["config"]["evaluation"]["effort"] is True
