"""Tests of forks through the HTTP API: refusals, and their curves, on both databases."""

import pytest
from sqlalchemy import select

from backend.config.evaluation import Suite
from backend.runs.checkpoints import forget_old_checkpoints
from backend.storage.models import Checkpoint, Run
from tests.factories import make_attempt, make_run, write_metric


@pytest.fixture
def parent(database):
    """A finished run of 20 steps with checkpoints of steps 10 and 20 and a curve."""
    with database.sessions.begin() as session:
        run = make_run(session, name="parent", seed=5, config={"steps": 20}, status="finished", attempt=1)
        add_checkpoints(session, run, 10, 20)
        write_metric(session, run, "reward/mean", {step: step / 10 for step in range(1, 21)})
        return run


def add_checkpoints(session, run, *steps):
    for step in steps:
        row = {"path": f"s{step:06d}-a1", "sha256": "0" * 64, "bytes_total": 2, "manifest": {}}
        session.add(Checkpoint(run_id=run.id, step=step, attempt=1, **row))


def fork(client, run, **body):
    return client.post(f"/api/v1/runs/{run.id}/fork", json=body)


def test_a_fork_is_queued_with_the_changed_config_of_its_parent(client, parent):
    response = fork(client, parent, step=10, changes={"optimizer": {"lr": 1e-5}}, name="calmer")
    assert response.status_code == 202, response.text
    run = response.json()
    assert (run["name"], run["status"], run["experiment"]) == ("calmer", "queued", None)
    assert (run["parent_run"], run["parent_name"], run["fork_step"]) == (parent.id, "parent", 10)
    assert (run["config"]["seed"], run["config"]["steps"]) == (5, 20)
    assert run["config"]["optimizer"]["lr"] == 1e-5
    events = client.get(f"/api/v1/runs/{run['id']}/events").json()["items"]
    assert events[0]["message"] == "queued as a fork of parent at step 10"


def test_retention_keeps_the_origin_of_a_fork(client, database, parent):
    assert fork(client, parent, step=10, changes={"steps": 30}).status_code == 202
    with database.sessions.begin() as session:
        assert forget_old_checkpoints(session, parent.id, keep=1) == {"s000010-a1", "s000020-a1"}


@pytest.mark.parametrize(
    ("body", "path", "phrase"),
    [
        ({}, "step", "required"),
        ({"step": 15}, "step", "parent has no checkpoint of step 15; it has checkpoints of steps: 10, 20"),
        ({"step": 20}, "steps", "is 20, but the fork starts after step 20 of parent: expected at least 21"),
        ({"step": 10, "changes": {"steps": 9}}, "steps", "expected at least 11"),
        ({"step": 10, "changes": {"policy": {"name": "tiny_moe"}}}, "policy.name", "expected 'tiny'"),
        (
            {"step": 10, "changes": {"policy": {"adapter": {"type": "lora"}}}},
            "policy.adapter",
            "expected {'type': 'none'}",
        ),
        (
            {"step": 10, "changes": {"policy": {"dtype": "bfloat16"}}},
            "policy.dtype",
            "continues the policy",
        ),
        ({"step": 10, "changes": {"optimizer": {"lr": -1}}}, "optimizer.lr", "greater than 0"),
        ({"step": 10, "changes": {"nothing": 1}}, "nothing", "there is no such field"),
    ],
)
def test_an_impossible_fork_is_refused_at_its_field(client, database, parent, body, path, phrase):
    response = fork(client, parent, **body)
    assert response.status_code == 422, response.text
    (error,) = response.json()["errors"]
    assert error["path"] == path
    assert phrase in error["message"]
    with database.sessions() as session:
        assert session.scalars(select(Run.id)).all() == [parent.id]


@pytest.mark.parametrize("after", range(12))
def test_evaluations_of_a_suite_and_of_a_fork_are_counted_when_due(after):
    for rule in (
        {"every": 3},
        {"every": 0},
        {"every": 4, "steps": (0, 2, 5, 8)},
        {"at_end": False, "every": 5},
    ):
        suite = Suite(**rule)
        due = [step for step in range(after + 1 if after else 0, 13) if suite.is_due(step, last_step=12)]
        assert suite.evaluations(12, after_step=after) == len(due)


def test_the_curves_of_a_fork_begin_with_those_of_its_ancestors(client, database, parent):
    with database.sessions.begin() as session:
        session.refresh(session.merge(parent))
        make_attempt(session, parent, 1, from_step=-1)
        child = make_run(session, parent_run=parent.id, fork_step=10, name="child", config={"steps": 20})
        add_checkpoints(session, child, 15)
        write_metric(session, child, "reward/mean", {step: 100.0 + step for step in range(11, 21)})
        grandchild = make_run(session, parent_run=child.id, fork_step=15, config={"steps": 20})
        write_metric(session, grandchild, "reward/mean", {16: 200.0})
        evaluation_run = make_run(session, parent_run=parent.id, fork_step=10, config={"steps": 0})
        write_metric(session, evaluation_run, "eval/accuracy", {0: 0.5})
    ids = [parent.id, child.id, grandchild.id, evaluation_run.id]
    document = client.get(
        "/api/v1/series", params={"runs": ",".join(ids), "metrics": "reward/mean,eval/accuracy"}
    ).json()
    curves = {(curve["run"], curve["metric"]): curve for curve in document["series"]}
    inherited = [step / 10 for step in range(1, 11)]
    assert curves[child.id, "reward/mean"]["values"] == inherited + [100.0 + n for n in range(11, 21)]
    assert curves[child.id, "reward/mean"]["origin"] == {"run": parent.id, "step": 10}
    expected = inherited + [100.0 + n for n in range(11, 16)] + [200.0]
    assert curves[grandchild.id, "reward/mean"]["values"] == expected
    assert curves[grandchild.id, "reward/mean"]["steps"] == list(range(1, 17))
    assert "origin" not in curves[parent.id, "reward/mean"]
    assert curves[evaluation_run.id, "eval/accuracy"]["values"] == [0.5]
    assert (evaluation_run.id, "reward/mean") not in curves
    newest_csv, own_csv = (
        client.get(f"/api/v1/runs/{child.id}/metrics.csv", params=params).text
        for params in ({}, {"attempts": "all"})
    )
    assert [line.split(",")[0] for line in newest_csv.split()] == ["step", *map(str, range(1, 21))]
    assert [line.split(",")[0] for line in own_csv.split()] == ["step", *map(str, range(11, 21))]
