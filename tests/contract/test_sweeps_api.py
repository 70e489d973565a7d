"""Tests of sweeps over HTTP, on both databases: planned, launched as ordinary variants, and refused."""

import json

import pytest
from sqlalchemy import select

from backend.config.merge import resolve
from backend.experiments.schemas import ExperimentPlan
from backend.storage.models import Experiment, Run
from tests.contract.test_experiments_api import count, launch
from tests.factories import make_attempt, make_run

SWEEP = {
    "name": "lr",
    "base": {"steps": 20},
    "variants": [{"name": "grpo", "preset": "grpo"}],
    "seeds": [0, 1],
    "sweep": {"knobs": [{"path": "optimizer.lr", "values": "1e-4, 1e-3"}]},
}


def test_a_sweep_becomes_ordinary_variants_and_the_same_key_launches_it_once(client, database):
    response = launch(client, SWEEP, "s1")
    assert response.status_code == 201, response.text
    runs = [(run["variant"], run["seed"]) for run in response.json()["runs"]]
    names = ["grpo lr=0.0001", "grpo lr=0.001"]
    assert runs == [(name, seed) for seed in (0, 1) for name in names]
    assert launch(client, SWEEP, "s1").json() == response.json()
    detail = client.get(f"/api/v1/experiments/{response.json()['id']}").json()
    assert detail["variants"] == names
    assert detail["request"]["variants"][1] == {
        "name": names[1],
        "preset": "grpo",
        "optimizer": {"lr": 0.001},
    }
    matrix = {"experiment": response.json()["id"], "metrics": "reward/mean", "baseline": names[0]}
    assert [row["variant"] for row in client.get("/api/v1/matrix", params=matrix).json()["rows"]] == names
    second_response = launch(client, detail["request"] | {"name": "again"})
    assert [run["variant"] for run in second_response.json()["runs"]] == [name for name, _ in runs]
    with database.sessions() as session:
        rates = [config["optimizer"]["lr"] for config in session.scalars(select(Run.config).order_by(Run.id))]
    assert rates == [1e-4, 1e-3] * 4


def test_an_invalid_cell_is_named_and_nothing_is_launched(client, database):
    knobs = [
        {"path": "optimizer.lr", "values": "1e-4, -1, -2"},
        {"path": "sampling.group_size", "values": "4, 8"},
    ]
    response = launch(client, SWEEP | {"sweep": {"knobs": knobs}})
    assert response.status_code == 422
    errors = response.json()["errors"]
    assert [error["path"] for error in errors] == ["sweep.optimizer.lr"] * 2
    assert errors[0]["message"].endswith("got -1.0 (in grpo lr=-1 group_size=4, grpo lr=-1 group_size=8)")
    assert (count(database, Experiment), count(database, Run)) == (0, 0)


def test_a_plan_shows_cells_time_and_money_and_launches_nothing(client, database):
    with database.sessions.begin() as session:
        summary = {"step": 5, "last": {"time/step_seconds": 2.0}, "best": {}}
        run = make_run(session, last_step=5, config=resolve({}).model_dump(mode="json"), summary=summary)
        attempt = make_attempt(session, run, 1)
        attempt.slot_price, attempt.currency = 3.6, "EUR"
    body = SWEEP | {"sweep": {"knobs": [{"path": "optimizer.lr", "values": "1e-4, -1"}]}}
    response = client.post("/api/v1/experiments/plan", json=body)
    assert response.status_code == 200, response.text
    plan = ExperimentPlan.model_validate(response.json())
    assert (plan.knobs, plan.runs, plan.currency) == (["optimizer.lr"], 4, "EUR")
    valid_cell, invalid_cell = plan.cells
    assert (valid_cell.variant, valid_cell.of, valid_cell.values, valid_cell.errors) == (
        "grpo lr=0.0001",
        "grpo",
        [1e-4],
        [],
    )
    assert valid_cell.seconds_low == pytest.approx(2.0 / 1.25 * 20)
    assert plan.seconds_high == pytest.approx(2 * 2.0 * 1.25 * 20)
    assert plan.money_high == pytest.approx(plan.seconds_high * 3.6 / 3600)
    assert [error.path for error in invalid_cell.errors] == ["optimizer.lr"]
    assert invalid_cell.seconds_low is None
    assert (count(database, Experiment), count(database, Run)) == (0, 1)


@pytest.mark.parametrize(
    ("sweep", "path", "phrase"),
    [
        ({"knobs": []}, "sweep.knobs", "at least 1"),
        ({"knobs": [{"path": "optimizer.lr", "values": []}]}, "sweep.knobs.0.values", "has 0 values"),
        ({"knobs": [{"path": "optimizer.lr", "values": [float("nan")]}]}, "sweep.knobs.0.values.0", "nan"),
        ({"knobs": [{"path": "optimizer.lr", "values": [2**80]}]}, "sweep.knobs.0.values.0", "2^63"),
        ({"knobs": [{"path": "optimizer.lr", "values": "1..2 log"}]}, "sweep.knobs.0.values", "a grid needs"),
        ({"knobs": [{"path": "seed", "values": "1"}]}, "sweep.knobs.0.path", "is not a knob"),
        ({"knobs": [{"path": "optimizer.lr", "values": "1"}] * 2}, "sweep.knobs", "can be swept once"),
        (
            {"knobs": [{"path": "steps", "values": "1..1000000"}]},
            "sweep",
            "1,000,000 cells with 2 seeds each are 2,000,000 runs",
        ),
        ({"knobs": [{"path": "no.such", "values": "1"}]}, "sweep.no", "there is no such field"),
        ({"knobs": [{"path": "preset", "values": "nothing"}]}, "sweep.preset", "there is no preset"),
    ],
)
@pytest.mark.parametrize("route", ["", "/plan"])
def test_an_impossible_sweep_is_refused_at_its_field(client, database, route, sweep, path, phrase):
    content = json.dumps(SWEEP | {"sweep": sweep})
    headers = {"Content-Type": "application/json"}
    response = client.post(f"/api/v1/experiments{route}", content=content, headers=headers)
    if route and response.status_code == 200:  # a plan shows the error of a cell at the cell
        errors = {
            f"sweep.{error['path']}": error["message"] for error in response.json()["cells"][0]["errors"]
        }
    else:
        assert response.status_code == 422, response.text
        errors = {error["path"]: error["message"] for error in response.json()["errors"]}
    assert phrase in errors[path]
    assert count(database, Experiment) == 0
