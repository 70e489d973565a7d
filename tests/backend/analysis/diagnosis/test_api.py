"""Tests of the diagnosis of stored runs over HTTP."""

import numpy as np
import pytest

from backend.metrics.store import write_points
from backend.rollouts.foreign import pack_foreign, replace_groups
from backend.rollouts.records import CompletionRecord, make_foreign_group
from tests.backend.analysis.diagnosis.logs import change_series, healthy
from tests.factories import make_attempt, make_run


@pytest.fixture
def store_log(client):
    """A function that stores a log as a run and returns its id."""

    def store(log, **fields):
        with client.app.state.lab.sessions.begin() as session:
            run = make_run(session, status="finished", attempt=1, **fields)
            make_attempt(session, run, 1, from_step=-1)
            points = {}
            for name, series in log.series.items():
                for step, metric_value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
                    points.setdefault(step, {})[name] = metric_value
            write_points(session, run.id, 1, sorted(points.items()))
            run.last_step = max(points, default=0)
            return run.id

    return store


def test_a_collapse_is_reported_with_its_cause_evidence_and_remedy(client, store_log):
    log = change_series(healthy(), 70, policy__entropy=lambda values: values * 4)
    run = store_log(change_series(log, 75, reward__accuracy=lambda values: values * 0.05))
    document = client.get(f"/api/v1/runs/{run}/diagnosis").json()
    assert (document["verdict"], document["goal"]) == ("collapsed", "reward/accuracy")
    cause = document["causes"][0]
    assert (cause["cause"], cause["share"]) == ("entropy_explosion", 1.0)
    assert cause["evidence"][0].startswith("policy/entropy was 0.8 in the median step")
    assert cause["remedy"]["changes"]["optimizer.lr"] == pytest.approx(1e-4)
    assert document["onset"]["healthy"] <= 70 <= document["onset"]["sick"]
    assert document["first_signals"] == ["policy/entropy"]


def test_an_imported_run_gets_a_remedy_without_fields_of_another_config(client, store_log):
    log = change_series(
        change_series(healthy(), 70, policy__entropy=lambda values: values * 4),
        75,
        reward__accuracy=np.zeros_like,
    )
    document = client.get(f"/api/v1/runs/{store_log(log, origin='trl')}/diagnosis").json()
    assert document["causes"][0]["remedy"]["changes"] == {}


def test_a_healthy_run_has_no_causes(client, store_log):
    document = client.get(f"/api/v1/runs/{store_log(healthy())}/diagnosis").json()
    assert (document["verdict"], document["causes"], document["onset"]) == ("healthy", [], None)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_run_of_few_steps_is_inconclusive(client, store_log, count):
    document = client.get(f"/api/v1/runs/{store_log(healthy(count))}/diagnosis").json()
    assert document["verdict"] == "inconclusive"
    assert document["best"] is None


def test_numbers_that_are_not_finite_are_json(client, store_log):
    run = store_log(
        change_series(healthy(), 60, optim__grad_norm=lambda values: np.full_like(values, np.inf))
    )
    document = client.get(f"/api/v1/runs/{run}/diagnosis").json()
    assert [cause["cause"] for cause in document["causes"]] == ["non_finite"]


def test_a_long_run_is_judged_by_downsampled_series(client, store_log):
    run = store_log(change_series(healthy(12_000), 8_000, reward__accuracy=lambda values: values * 0.05))
    document = client.get(f"/api/v1/runs/{run}/diagnosis").json()
    assert document["verdict"] == "collapsed"
    assert document["fall"]["healthy"] <= 8_000 <= document["fall"]["sick"] + 3


def test_an_unknown_run_is_not_found(client):
    assert client.get("/api/v1/runs/nothing/diagnosis").status_code == 404


def test_a_viewer_can_read_the_diagnosis(viewer):
    assert viewer.get("/api/v1/runs/nothing/diagnosis").status_code == 404


RIGHT = CompletionRecord("\\boxed{2}", reward=1.0, correct=True)
WRONG = CompletionRecord("3", reward=0.0, correct=False)
HACKED = CompletionRecord("3", reward=1.0, correct=False)
CUT = CompletionRecord("33333", reward=0.0, correct=False, finish_reason="length")


def store_completions(client, run, steps, kind="train"):
    """Store one group of completions at each of these steps."""
    with client.app.state.lab.sessions.begin() as session:
        for step, completions in steps.items():
            group = make_foreign_group(kind, 0, "1+1=?", "2", completions)
            replace_groups(session, pack_foreign(run, step, [group]))


def evidence(client, run):
    items = client.get("/api/v1/rollouts/evidence", params={"run": run}).raise_for_status().json()["items"]
    field_names = ("kind", "step", "marks", "completions")
    return {finding["cause"]: tuple(finding[field] for field in field_names) for finding in items}


@pytest.mark.parametrize("origin", ["", "trl"])
def test_a_cause_points_to_the_first_stored_step_whose_completions_show_it(client, store_log, origin):
    log = change_series(healthy(), 70, length__mean=lambda values: values * 2.5)
    run = store_log(change_series(log, 75, reward__accuracy=lambda values: values * 0.05), origin=origin)
    store_completions(client, run, {60: [CUT], 74: [RIGHT, WRONG], 80: [CUT, CUT, WRONG], 90: [CUT]})
    assert evidence(client, run) == {
        "": ("train", 74, [], 2),
        "length_blowup": ("train", 80, ["truncated"], 2),
    }


def test_wrong_answers_that_were_rewarded_show_a_hacked_reward(client, store_log):
    log = healthy(**{"reward/mean": np.full(120, 0.5)})
    run = store_log(change_series(log, 70, reward__accuracy=lambda values: values * 0.05))
    store_completions(client, run, {75: [WRONG, RIGHT], 90: [WRONG, HACKED]})
    assert evidence(client, run)["reward_hacking"] == ("train", 90, ["wrong", "rewarded"], 1)


def test_without_completions_after_the_onset_there_is_no_evidence(client, store_log):
    log = change_series(healthy(), 70, length__mean=lambda values: values * 2.5)
    run = store_log(change_series(log, 75, reward__accuracy=lambda values: values * 0.05))
    store_completions(client, run, {60: [CUT]})
    assert evidence(client, run) == {}


def test_without_completions_that_show_it_a_cause_points_to_any(client, store_log):
    log = change_series(healthy(), 70, length__mean=lambda values: values * 2.5)
    run = store_log(change_series(log, 75, reward__accuracy=lambda values: values * 0.05))
    store_completions(client, run, {80: [WRONG]})
    assert evidence(client, run)["length_blowup"] == ("train", 80, [], 1)


def test_a_healthy_run_has_no_evidence(client, store_log):
    run = store_log(healthy())
    store_completions(client, run, {80: [WRONG]})
    assert evidence(client, run) == {}
    assert client.get("/api/v1/rollouts/evidence", params={"run": "none"}).status_code == 404
