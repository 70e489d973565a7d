"""The diagnosis of stored runs over HTTP."""

import numpy as np
import pytest

from backend.metrics.store import write_points
from tests.backend.diagnosis.logs import broken, healthy
from tests.factories import make_attempt, make_run


@pytest.fixture
def stored(client):
    """A function that stores a log as a run and gives its id."""

    def store(log, **fields):
        with client.app.state.lab.sessions.begin() as session:
            run = make_run(session, status="finished", attempt=1, **fields)
            make_attempt(session, run, 1, from_step=-1)
            points = {}
            for name, series in log.series.items():
                for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
                    points.setdefault(step, {})[name] = value
            write_points(session, run.id, 1, sorted(points.items()))
            run.last_step = max(points, default=0)
            return run.id

    return store


def test_a_collapse_is_told_with_cause_evidence_and_remedy(client, stored):
    log = broken(healthy(), 70, policy__entropy=lambda values: values * 4)
    run = stored(broken(log, 75, reward__accuracy=lambda values: values * 0.05))
    answer = client.get(f"/api/v1/runs/{run}/diagnosis").json()
    assert (answer["verdict"], answer["goal"]) == ("collapsed", "reward/accuracy")
    cause = answer["causes"][0]
    assert (cause["cause"], cause["share"]) == ("entropy_explosion", 1.0)
    assert cause["evidence"][0].startswith("policy/entropy went from 0.8")
    assert cause["remedy"]["changes"]["optimizer.lr"] == pytest.approx(1e-4)
    assert answer["onset"]["healthy"] <= 70 <= answer["onset"]["sick"]
    assert answer["first_signals"] == ["policy/entropy"]


def test_an_imported_run_gets_a_remedy_without_fields_of_another_config(client, stored):
    log = broken(
        broken(healthy(), 70, policy__entropy=lambda values: values * 4), 75, reward__accuracy=np.zeros_like
    )
    answer = client.get(f"/api/v1/runs/{stored(log, origin='trl')}/diagnosis").json()
    assert answer["causes"][0]["remedy"]["changes"] == {}


def test_a_healthy_run_has_no_causes(client, stored):
    answer = client.get(f"/api/v1/runs/{stored(healthy())}/diagnosis").json()
    assert (answer["verdict"], answer["causes"], answer["onset"]) == ("healthy", [], None)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_run_of_few_steps_is_inconclusive(client, stored, count):
    answer = client.get(f"/api/v1/runs/{stored(healthy(count))}/diagnosis").json()
    assert answer["verdict"] == "inconclusive"
    assert answer["best"] is None


def test_numbers_that_are_not_finite_are_json(client, stored):
    run = stored(broken(healthy(), 60, optim__grad_norm=lambda values: np.full_like(values, np.inf)))
    answer = client.get(f"/api/v1/runs/{run}/diagnosis").json()
    assert [each["cause"] for each in answer["causes"]] == ["non_finite"]


def test_a_long_run_is_judged_by_its_parts(client, stored):
    run = stored(broken(healthy(12_000), 8_000, reward__accuracy=lambda values: values * 0.05))
    answer = client.get(f"/api/v1/runs/{run}/diagnosis").json()
    assert answer["verdict"] == "collapsed"
    assert answer["fall"]["healthy"] <= 8_000 <= answer["fall"]["sick"] + 3


def test_an_unknown_run_is_not_found(client):
    assert client.get("/api/v1/runs/nothing/diagnosis").status_code == 404


def test_a_viewer_reads_it(viewer):
    assert viewer.get("/api/v1/runs/nothing/diagnosis").status_code == 404
