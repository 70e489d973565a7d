"""Tests of curves over HTTP, on both databases."""

import math

import numpy as np
import pytest

from backend.metrics.schemas import SeriesResponse
from backend.metrics.store import write_points
from tests.factories import make_run, seeded_metrics, write_metric


def series(client, runs, metrics, **params):
    ids = ",".join(run.id for run in runs)
    response = client.get("/api/v1/series", params={"runs": ids, "metrics": metrics, **params})
    assert response.status_code == 200, response.text
    SeriesResponse.model_validate(response.json())
    return response.json()


@pytest.fixture
def trained(database):
    """Two runs of 3,000 steps, the second with a spike."""
    with database.sessions.begin() as session:
        runs = [make_run(session, name=f"run-{seed}", variant="v", seed=seed) for seed in (0, 1)]
        for seed, run in enumerate(runs):
            metrics = seeded_metrics(3000, seed=seed, spike_at=1777 if seed else None)
            write_points(session, run.id, 1, metrics.items())
    return runs


def test_a_long_curve_is_thinned_and_keeps_first_last_and_spike(client, trained):
    item = series(client, trained[1:], "loss/total")["series"][0]
    assert len(item["values"]) <= 500
    assert (item["steps"][0], item["steps"][-1], item["raw_points"]) == (1, 3000, 3000)
    assert item["values"][item["steps"].index(1777)] == 1000.0


def test_nonfinite_values_are_distinguished_and_zero_is_a_value(client, database):
    with database.sessions.begin() as session:
        run = make_run(session)
        write_metric(session, run, "a", {1: 0.0, 2: math.nan, 3: math.inf, 4: -math.inf, 5: 2.0})
    item = series(client, [run], "a")["series"][0]
    assert (item["steps"], item["values"]) == ([1, 5], [0.0, 2.0])
    assert item["non_finite"] == [
        {"step": 2, "x": 2.0, "value": "NaN"},
        {"step": 3, "x": 3.0, "value": "Infinity"},
        {"step": 4, "x": 4.0, "value": "-Infinity"},
    ]


def test_smoothing_is_computed_before_thinning_and_cutting(client, trained):
    full_curve = series(client, trained[:1], "reward/mean", smoothing=0.9, max_points=5000)["series"][0]
    cut_curve = series(client, trained[:1], "reward/mean", smoothing=0.9, x_min=2000, x_max=2010)["series"][0]
    first_index = full_curve["steps"].index(2000)
    assert cut_curve["steps"] == list(range(2000, 2011))
    assert cut_curve["values"] == full_curve["values"][first_index : first_index + 11]


@pytest.mark.parametrize(("x", "per_step"), [("step", 1.0), ("wall", 0.5), ("tokens", 4096.0)])
def test_a_curve_runs_along_steps_time_or_tokens(client, trained, x, per_step):
    item = series(client, trained[:1], "reward/mean", x=x, x_max=10 * per_step)["series"][0]
    assert item["x"] == [per_step * step for step in range(1, 11)]


def test_the_end_of_a_curve_matches_the_matrix_for_any_display_settings(client, trained):
    losses = [
        [values["loss/total"] for values in seeded_metrics(3000, seed=seed, spike_at=spike).values()]
        for seed, spike in ((0, None), (1, 1777))
    ]
    last_means = [np.mean(values[-10:]) for values in losses]
    display_settings = {"smoothing": 0.9, "x_max": 100, "max_points": 10, "ends": True}
    single_curves = series(client, trained, "loss/total", **display_settings)["series"]
    assert [item["end"] for item in single_curves] == [
        {"n": 1, "mean": pytest.approx(end), "low": None, "high": None} for end in last_means
    ]
    (group,) = series(client, trained, "loss/total", group_by="variant", **display_settings)["series"]
    query = {"runs": ",".join(run.id for run in trained), "metrics": "loss/total:final"}
    (row,) = client.get("/api/v1/matrix", params=query).json()["rows"]
    cell = row["cells"]["loss/total:final"]
    assert group["end"] == {key: pytest.approx(cell[key]) for key in ("n", "mean", "low", "high")}


def test_seeds_of_a_variant_become_one_curve_with_a_band(client, trained):
    document = series(client, trained, "reward/mean", group_by="variant", band="std", max_points=100_000)
    (group,) = document["series"]
    singles = series(client, trained, "reward/mean", max_points=100_000)["series"]
    values = np.array([single_curve["values"] for single_curve in singles])
    assert (group["group"], group["n"][:2]) == ("v", [2, 2])
    assert group["values"] == pytest.approx(values.mean(axis=0))
    assert group["high"] == pytest.approx(values.mean(axis=0) + values.std(axis=0, ddof=1))
    thinned_curve = series(client, trained, "loss/total", group_by="variant", band="minmax")["series"][0]
    assert 1777 in thinned_curve["steps"]
    assert len(thinned_curve["steps"]) <= 500


def test_runs_are_grouped_by_any_field_of_their_config(client, database):
    with database.sessions.begin() as session:
        runs = [make_run(session, config={"sampling": {"group_size": size}}) for size in (4, 8, 8)]
        for run in runs:
            write_metric(session, run, "a", {1: 1.0})
    document = series(client, runs, "a", group_by="config.sampling.group_size")
    assert {item["group"]: item["n"] for item in document["series"]} == {"4": [1], "8": [2]}


def test_only_new_points_follow_the_cursor(client, database):
    with database.sessions.begin() as session:
        run = make_run(session, status="running")
        write_metric(session, run, "a", {1: 1.0, 2: 2.0})
    cursor = series(client, [run], "a")["cursor"]
    assert series(client, [run], "a", after=cursor)["series"][0]["values"] == []
    with database.sessions.begin() as session:
        write_metric(session, run, "a", {3: 3.0})
    assert series(client, [run], "a", after=cursor)["series"][0]["steps"] == [3]


def test_missing_data_is_reported_without_a_failure(client, database):
    with database.sessions.begin() as session:
        run = make_run(session)
    document = client.get("/api/v1/series", params={"runs": f"{run.id},ghost", "metrics": "kl/k1"}).json()
    assert document["series"] == []
    assert document["missing"] == [
        {"run": run.id, "metric": "kl/k1", "reason": "no points"},
        {"run": "ghost", "metric": "kl/k1", "reason": "no such run"},
    ]


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"metrics": ""}, "metrics"),
        ({"runs": ","}, "runs"),
        ({"runs": ",".join(map(str, range(201)))}, "runs"),
        ({"max_points": "150000", "runs": "a,b"}, "max_points"),
        ({"smoothing": "1"}, "smoothing"),
        ({"smoothing": "nan"}, "smoothing"),
        ({"x": "time"}, "x"),
        ({"x_min": "inf"}, "x_min"),
        ({"band": "sd"}, "band"),
        ({"group_by": "seed"}, "group_by"),
    ],
)
def test_an_invalid_request_is_refused_at_its_parameter(client, params, path):
    response = client.get("/api/v1/series", params={"runs": "a", "metrics": "m"} | params)
    assert response.status_code == 422
    assert response.json()["errors"][0]["path"] == path


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("rewrad/mean", "there is no metric 'rewrad/mean'; did you mean reward/mean"),
        ("reward_std", "there is no metric 'reward_std'; it is called reward/std here"),
        ("qqqqqq", "there is no metric 'qqqqqq'; GET /api/v1/metric-catalog lists them"),
        ("x" * 200, "at most 128 characters"),
    ],
)
def test_an_unknown_metric_is_named_with_the_most_similar_ones(client, trained, name, phrase):
    params = {"runs": trained[0].id, "metrics": f"loss/total,{name}"}
    response = client.get("/api/v1/series", params=params)
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["path"] == "metrics"
    assert phrase in error["message"]


def test_a_curve_over_samples_counts_everything_that_was_sampled(client, database):
    sampling = {"prompts_per_step": 4, "group_size": 8}
    with database.sessions.begin() as session:
        run = make_run(session, config={"sampling": sampling})
        write_metric(session, run, "reward/mean", {1: 0.1, 2: 0.2, 3: 0.3})
        write_metric(session, run, "sampling/generated_batches", {1: 1, 2: 3, 3: 1})
        smaller = {"sampling": sampling | {"group_size": 2}}
        fork = make_run(session, config=smaller, parent_run=run.id, fork_step=2, steps=9)
        write_metric(session, fork, "reward/mean", {3: 0.4})
        write_metric(session, fork, "sampling/generated_batches", {3: 2})
        foreign_run = make_run(session)
        foreign_run.config = {"sampling": {"prompts_per_step": "many"}}
        vast_run = make_run(session)
        vast_run.config = {"sampling": {"prompts_per_step": 10**40, "group_size": 10**40}}
        for imported_run in (foreign_run, vast_run):
            write_metric(session, imported_run, "reward/mean", {1: 0.1})
            write_metric(session, imported_run, "sampling/generated_batches", {1: 1})
    document = series(client, [run, fork, foreign_run, vast_run], "reward/mean", x="samples")
    assert [item["x"] for item in document["series"]] == [[32, 128, 160], [32, 128, 144]]
    assert [(item["run"], item["reason"]) for item in document["missing"]] == [
        (foreign_run.id, "no points"),
        (vast_run.id, "no points"),
    ]


def test_a_curve_over_a_metric_is_in_the_order_of_its_values(client, database):
    with database.sessions.begin() as session:
        run = make_run(session)
        write_metric(session, run, "eval/accuracy", {0: 0.1, 2: 0.3, 4: 0.5, 6: 0.4, 8: 0.2})
        write_metric(session, run, "kl/k3", {2: 0.02, 4: 0.01, 6: math.nan, 8: 0.05, 9: 0.07})
    (item,) = series(client, [run], "eval/accuracy", x="kl/k3")["series"]
    assert item["x"] == [0.01, 0.02, 0.05]
    assert item["steps"] == [4, 2, 8]
    assert item["values"] == [0.5, 0.3, 0.2]
    (compact_curve,) = series(client, [run], "eval/accuracy", x="kl/k3", compact=True)["series"]
    assert compact_curve["steps"] == [4, -2, 6]
