"""Tests that a request repeated with its Idempotency-Key creates nothing twice, on both databases."""

import threading

import pytest
from sqlalchemy import func, select

from backend.storage.models import Event, Run
from tests.contract.test_forks import add_checkpoints
from tests.factories import make_run

pytestmark = pytest.mark.both_databases

REQUESTS = [("fork", {"step": 10}, {"step": 20}), ("clone", {}, {"seed": 7}), ("evaluations", {}, {"k": 4})]
"""Requests as (route, body, a different body)."""

EXPERIMENT_BODY = {"name": "x", "variants": [{"name": "v"}]}


@pytest.fixture
def parent(database):
    """A finished run with checkpoints of steps 10 and 20."""
    with database.sessions.begin() as session:
        run = make_run(session, name="parent", config={"steps": 30}, status="finished", attempt=1)
        add_checkpoints(session, run, 10, 20)
        return run.id


def send_action(client, parent, verb, body, key):
    headers = {"Idempotency-Key": key} if key else {}
    return client.post(f"/api/v1/runs/{parent}/{verb}", json=body, headers=headers)


def counts(database):
    """Return the number of runs, and of events that record their creation."""
    with database.sessions() as session:
        return [session.scalar(select(func.count()).select_from(table)) for table in (Run, Event)]


@pytest.mark.parametrize(("verb", "body", "other_body"), REQUESTS)
def test_the_same_key_and_body_return_the_same_run_and_another_body_is_refused(
    client, database, parent, verb, body, other_body
):
    first_response, second_response = (send_action(client, parent, verb, body, "k1") for _ in range(2))
    assert (first_response.status_code, second_response.status_code) == (202, 202), first_response.text
    assert first_response.json() == second_response.json()
    rejected_response = send_action(client, parent, verb, other_body, "k1")
    assert rejected_response.status_code == 409
    assert rejected_response.json()["detail"] == (
        "the Idempotency-Key 'k1' was already used for a different request: choose a new one"
    )
    assert counts(database) == [2, 1]
    assert send_action(client, parent, verb, body, "k2").json()["id"] != first_response.json()["id"]
    assert (
        send_action(client, parent, verb, body, "").json()["id"]
        != send_action(client, parent, verb, body, "").json()["id"]
    )
    assert counts(database) == [5, 4]


def test_a_key_identifies_one_request_across_all_routes_and_runs(client, database, parent):
    headers = {"Idempotency-Key": "k1"}
    assert client.post("/api/v1/experiments", json=EXPERIMENT_BODY, headers=headers).status_code == 201
    assert send_action(client, parent, "clone", {}, "k1").status_code == 409
    (other_run,) = client.get("/api/v1/runs", params={"status": "queued"}).json()["items"]
    assert send_action(client, parent, "clone", {}, "k2").status_code == 202
    assert send_action(client, other_run["id"], "clone", {}, "k2").status_code == 409
    assert send_action(client, parent, "evaluations", {}, "k2").status_code == 409
    headers["Idempotency-Key"] = "k2"
    assert client.post("/api/v1/experiments", json=EXPERIMENT_BODY, headers=headers).status_code == 409
    assert counts(database)[0] == 3


def test_the_response_is_the_current_run_even_if_it_could_no_longer_be_created(client, database, parent):
    run_id = send_action(client, parent, "fork", {"step": 10}, "k1").json()["id"]
    client.post(f"/api/v1/runs/{run_id}/stop")
    client.delete(f"/api/v1/runs/{parent}")
    second_response = send_action(client, parent, "fork", {"step": 10}, "k1")
    assert (second_response.status_code, second_response.json()["id"], second_response.json()["status"]) == (
        202,
        run_id,
        "stopped",
    )
    assert send_action(client, parent, "fork", {"step": 10}, "k2").status_code == 409


@pytest.mark.parametrize(("verb", "body", "_other"), REQUESTS)
def test_the_same_key_sent_concurrently_creates_one_run(client, database, parent, verb, body, _other):
    responses = []

    def send():
        responses.append(send_action(client, parent, verb, body, "k1"))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {response.status_code for response in responses} == {202}
    assert len({response.json()["id"] for response in responses}) == 1
    assert counts(database) == [2, 1]


def test_a_key_that_looks_like_a_secret_is_refused(client, parent):
    secret = "hf_" + "S" * 40
    response = send_action(client, parent, "clone", {}, secret)
    assert response.status_code == 422
    assert secret not in response.text
