"""Tests of the matrix over HTTP: pairing, correction, plans, and the reason if nothing can be claimed."""

import math

import pytest

from backend.experiments.matrix.schemas import Matrix
from tests.factories import make_experiment, make_run, write_metric

METRIC = "eval/accuracy"
FINAL_READING = f"{METRIC}:final"


def trained_run(session, variant, seed, value, *, experiment=None, metric=METRIC, **fields):
    """Return a finished run whose metric ends at a value."""
    fields = {"status": "finished", "variant": variant, "seed": seed, "last_step": 3} | fields
    if experiment is not None:
        fields["experiment_id"] = experiment.id
    run = make_run(session, **fields)
    if value is not None:
        write_metric(session, run, metric, {1: 0.1, 3: value})
    write_metric(session, run, "tokens/total", {1: 100.0, 2: 200.0, 3: 300.0})
    return run


def launched_experiment(session, seeds, **variants):
    """Return an experiment whose variants end at the values, by seed from 0."""
    request = {"name": "sweep", "base": {}, "variants": [{"name": name} for name in variants], "seeds": seeds}
    experiment = make_experiment(session, request=request)
    for variant, values in variants.items():
        for seed, accuracy in enumerate(values):
            trained_run(session, variant, seed, accuracy, experiment=experiment)
    return experiment.id


def matrix(client, **params):
    response = client.get("/api/v1/matrix", params={"metrics": METRIC} | params)
    assert response.status_code == 200, response.text
    Matrix.model_validate(response.json())
    return response.json()


def cells(document, key=FINAL_READING):
    return {row["variant"]: row["cells"][key] for row in document["rows"]}


def errors(client, **params):
    response = client.get("/api/v1/matrix", params=params)
    assert response.status_code == 422, response.text
    return [(error["path"], error["message"]) for error in response.json()["errors"]]


def test_a_launched_experiment_is_evaluated_once_all_its_seeds_have_finished(client, database):
    with database.sessions.begin() as session:
        experiment = launched_experiment(
            session, [0, 1, 2], grpo=(0.5, 0.6, 0.4), dapo=(0.61, 0.7, 0.5), dry=(0.5, 0.61)
        )
    document = matrix(client, experiment=experiment, baseline="grpo")
    assert (document["looks"], document["planned"], document["tests"]) == ("planned", 3, 2)
    cell_by_variant = cells(document)
    assert cell_by_variant["grpo"]["verdict"] == "baseline"
    assert cell_by_variant["grpo"]["mean"] == pytest.approx(0.5)
    assert cell_by_variant["grpo"]["high"] == pytest.approx(0.5 + 4.302653 * 0.1 / math.sqrt(3))
    dapo = cell_by_variant["dapo"]["versus"]
    # Differences .11, .10, .10; although the third seed of dry is missing, its test counts in the correction.
    assert (dapo["paired"], dapo["n"], dapo["mean"]) == (True, 3, pytest.approx(0.31 / 3))
    assert dapo["variance_ratio"] < 0.01
    assert dapo["p_corrected"] == pytest.approx(2 * dapo["p"])
    assert cell_by_variant["dapo"]["verdict"] == "better"
    assert cell_by_variant["dry"]["verdict"] == "no claim"
    assert cell_by_variant["dry"]["reason"] == (
        "2 of 3 planned seeds of dry have finished: not tested until all have finished."
    )


def test_seeds_added_after_a_look_make_intervals_anytime_valid(client, database):
    with database.sessions.begin() as session:
        experiment = launched_experiment(session, [0, 1, 2], grpo=(0.5, 0.6, 0.4), dapo=(0.6, 0.71, 0.5))
        added = [
            trained_run(session, variant, 3, accuracy).id
            for variant, accuracy in (("grpo", 0.5), ("dapo", 0.6))
        ]
    ids = [run["id"] for row in matrix(client, experiment=experiment)["rows"] for run in row["runs"]]
    document = matrix(client, runs=",".join([*ids, *added]))
    assert (document["looks"], document["planned"]) == ("any time", None)
    cell = cells(document)["dapo"]
    # At four seeds t must exceed 7.2, while a single look requires 3.2; this t is 41.
    assert (cell["versus"]["n"], cell["verdict"]) == (4, "better")
    planned_document = matrix(client, runs=",".join([*ids, *added]), planned=4)
    assert planned_document["looks"] == "planned"
    assert cells(planned_document)["dapo"]["versus"]["p"] < cell["versus"]["p"]
    beyond = matrix(client, runs=",".join([*ids, *added]), planned=3)
    assert beyond["looks"] == "any time"
    assert "more than the 3 planned seeds" in beyond["notes"][0]


def test_an_undecided_difference_states_the_number_of_seeds_needed(client, database):
    with database.sessions.begin() as session:
        experiment = launched_experiment(
            session,
            [0, 1, 2, 3],
            grpo=(0.5, 0.5, 0.5, 0.5),
            dapo=(0.62, 0.54, 0.65, 0.55),
            dry=(0.5, 0.5, 0.4, 0.6),
        )
    cell_by_variant = cells(matrix(client, experiment=experiment))
    assert cell_by_variant["dapo"]["verdict"] == "more seeds"
    assert 1 <= cell_by_variant["dapo"]["more_seeds"] <= 20
    assert cell_by_variant["dry"]["verdict"] == "no difference shown"
    assert cell_by_variant["dry"]["more_seeds"] is None


@pytest.mark.parametrize(
    ("dapo", "verdict", "phrase"),
    [
        ((0.6, 0.7, None), "no claim", "1 of 3 runs of dapo have no value here"),
        ((0.6, 0.7, math.nan), "no claim", "1 of 3 runs of dapo end with a value that is not finite"),
        ((None, None, None), "no claim", "dapo has no value here"),
        ((0.5, 0.6, 0.4), "no claim", "The differences do not vary"),
    ],
)
def test_a_missing_claim_is_explained_in_one_sentence(client, database, dapo, verdict, phrase):
    with database.sessions.begin() as session:
        experiment = launched_experiment(session, [0, 1, 2], grpo=(0.5, 0.6, 0.4), dapo=dapo)
    cell = cells(matrix(client, experiment=experiment))["dapo"]
    assert cell["verdict"] == verdict
    assert phrase in cell["reason"]


def imported_run(session, variant, seed, *, accuracy=0.9, tokens=False):
    """Return a run of another trainer that ends at an accuracy; accuracy or tokens may be missing."""
    run = make_run(session, variant=variant, seed=seed, status="finished", last_step=30, origin="trl")
    write_metric(session, run, "reward/mean", {10: 0.1, 30: 0.2})
    if accuracy is not None:
        write_metric(session, run, METRIC, {10: 0.4, 20: accuracy, 30: accuracy})
    if tokens:
        write_metric(session, run, "tokens/total", {10: 100.0, 20: 200.0 + seed, 30: 300.0})
    return run.id


@pytest.mark.parametrize(
    ("runs", "reading", "reached", "reason"),
    [
        ([{}] * 3, "tokens_to", 3, "3 of 3 runs of dapo do not record tokens/total."),
        ([{}] * 3, "seconds_to", 3, "3 of 3 runs of dapo do not record time/wall_seconds."),
        ([{"tokens": True}, {}, {}], "tokens_to", 3, "2 of 3 runs of dapo do not record tokens/total."),
        (
            [{"tokens": True}, {"tokens": True}, {"accuracy": None, "tokens": True}],
            "tokens_to",
            2,
            "1 of 3 runs of dapo do not record eval/accuracy.",
        ),
        ([{"accuracy": None}] * 3, "steps_to", None, "3 of 3 runs of dapo do not record eval/accuracy."),
        (
            [{"tokens": True}, {"tokens": True}, {"accuracy": 0.45, "tokens": True}],
            "tokens_to",
            2,
            "1 of 3 runs of dapo never reached 0.5.",
        ),
    ],
)
def test_a_missed_threshold_is_distinguished_from_a_missing_metric(
    client, database, runs, reading, reached, reason
):
    with database.sessions.begin() as session:
        ids = [trained_run(session, "grpo", seed, 0.9).id for seed in range(3)]
        ids += [imported_run(session, "dapo", seed, **fields) for seed, fields in enumerate(runs)]
    key = f"{METRIC}:{reading}:0.5"
    cell = cells(matrix(client, runs=",".join(ids), metrics=key, planned=3), key)["dapo"]
    assert (cell["reached"], cell["verdict"], cell["reason"]) == (reached, "no claim", reason)


def test_a_metric_with_two_scales_is_not_compared(client, database):
    with database.sessions.begin() as session:
        runs = [
            trained_run(session, name, seed, 0.5, config=config, metric="reward/mean")
            for name, config in (("grpo", {}), ("dapo", {"preset": "dapo"}))
            for seed in (0, 1)
        ]
        ids = ",".join(run.id for run in runs)
    cell = cells(matrix(client, runs=ids, metrics="reward/mean"), "reward/mean:final")["dapo"]
    assert (cell["verdict"], cell["versus"]) == ("not comparable", None)
    assert "length.penalty.type" in cell["reason"]


@pytest.mark.parametrize(
    ("params", "path", "phrase"),
    [
        ({}, "runs", "name either an experiment or runs"),
        ({"runs": "a", "experiment": "b"}, "runs", "name either"),
        ({"runs": "a;b,a"}, "runs", "'a' is in several groups"),
        ({"runs": ",".join(f"r{n}" for n in range(501))}, "runs", "names 501 runs; at most 500"),
        ({"runs": "a", "metrics": "eval/acuracy"}, "metrics", "did you mean eval/accuracy"),
        ({"runs": "a", "metrics": "eval/accuracy:finale"}, "metrics", "there is no reading 'finale'"),
        ({"runs": "a", "metrics": "eval/accuracy:steps_to"}, "metrics", "needs a threshold"),
        ({"runs": "a", "metrics": "eval/accuracy:steps_to:nan"}, "metrics", "expected a number"),
        ({"runs": "a", "metrics": "length/mean:best"}, "metrics", "neither better higher nor lower"),
        ({"runs": "a", "metrics": ","}, "metrics", "at least one column"),
        (
            {"runs": "a", "metrics": ",".join(f"eval/accuracy:steps_to:{n}" for n in range(17))},
            "metrics",
            "17",
        ),
    ],
)
def test_bad_requests_are_refused_with_a_reason(client, params, path, phrase):
    (error, *_) = errors(client, **params)
    assert error[0] == path
    assert phrase in error[1]


def test_a_fork_has_its_own_row_next_to_its_parent(client, database):
    with database.sessions.begin() as session:
        parents = [trained_run(session, "grpo", seed, 0.5) for seed in (0, 1)]
        forks = [trained_run(session, "grpo", run.seed, 0.7) for run in parents]
        for fork, run in zip(forks, parents, strict=True):
            fork.parent_run, fork.fork_step = run.id, 1
    rows = matrix(client, runs=",".join(run.id for run in [*parents, *forks]))["rows"]
    assert [[run["id"] for run in row["runs"]] for row in rows] == [
        [run.id for run in parents],
        [run.id for run in forks],
    ]
    first, second = (row["variant"] for row in rows)
    assert second == f"{first} · fork at 1"
