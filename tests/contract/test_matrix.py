"""The matrix over HTTP: pairing, correction, plans, and the sentence for whatever cannot be claimed."""

import math

import pytest
from sqlalchemy import select

from backend.experiments.matrix.schemas import Matrix
from backend.storage.models import Run
from tests.factories import make_experiment, make_run, write_metric

METRIC = "eval/accuracy"
FINAL = f"{METRIC}:final"


def trained(session, variant, seed, value, *, experiment=None, metric=METRIC, **fields):
    """A finished run whose metric ends at a value."""
    fields = {"status": "finished", "variant": variant, "seed": seed, "last_step": 3} | fields
    if experiment is not None:
        fields["experiment_id"] = experiment.id
    run = make_run(session, **fields)
    if value is not None:
        write_metric(session, run, metric, {1: 0.1, 3: value})
    write_metric(session, run, "tokens/total", {1: 100.0, 2: 200.0, 3: 300.0})
    return run


def launched(session, seeds, **variants):
    """An experiment whose variants end at the values, by seed from 0."""
    request = {"name": "sweep", "base": {}, "variants": [{"name": name} for name in variants], "seeds": seeds}
    experiment = make_experiment(session, request=request)
    for variant, values in variants.items():
        for seed, value in enumerate(values):
            trained(session, variant, seed, value, experiment=experiment)
    return experiment.id


def matrix(client, **params):
    answer = client.get("/api/v1/matrix", params={"metrics": METRIC} | params)
    assert answer.status_code == 200, answer.text
    Matrix.model_validate(answer.json())
    return answer.json()


def cells(answer, key=FINAL):
    return {row["variant"]: row["cells"][key] for row in answer["rows"]}


def errors(client, **params):
    answer = client.get("/api/v1/matrix", params=params)
    assert answer.status_code == 422, answer.text
    return [(error["path"], error["message"]) for error in answer.json()["errors"]]


def test_a_launched_experiment_is_judged_once_all_its_seeds_have_finished(client, database):
    with database.sessions.begin() as session:
        experiment = launched(
            session, [0, 1, 2], grpo=(0.5, 0.6, 0.4), dapo=(0.61, 0.7, 0.5), dry=(0.5, 0.61)
        )
    answer = matrix(client, experiment=experiment, baseline="grpo")
    assert (answer["looks"], answer["planned"], answer["tests"]) == ("planned", 3, 2)
    cell_by_variant = cells(answer)
    assert cell_by_variant["grpo"]["verdict"] == "baseline"
    assert cell_by_variant["grpo"]["mean"] == pytest.approx(0.5)
    assert cell_by_variant["grpo"]["high"] == pytest.approx(0.5 + 4.302653 * 0.1 / math.sqrt(3))
    dapo = cell_by_variant["dapo"]["versus"]
    # Differences .11, .10, .10; with the third seed of dry missing its test still counts in the correction.
    assert (dapo["paired"], dapo["n"], dapo["mean"]) == (True, 3, pytest.approx(0.31 / 3))
    assert dapo["variance_ratio"] < 0.01
    assert dapo["p_corrected"] == pytest.approx(2 * dapo["p"])
    assert cell_by_variant["dapo"]["verdict"] == "better"
    assert cell_by_variant["dry"]["verdict"] == "no claim"
    assert cell_by_variant["dry"]["reason"] == (
        "2 of 3 planned seeds of dry have finished: no claim until all have finished."
    )


def test_seeds_added_after_a_look_make_intervals_always_valid(client, database):
    with database.sessions.begin() as session:
        experiment = launched(session, [0, 1, 2], grpo=(0.5, 0.6, 0.4), dapo=(0.6, 0.71, 0.5))
        added = [trained(session, variant, 3, value).id for variant, value in (("grpo", 0.5), ("dapo", 0.6))]
    ids = [run["id"] for row in matrix(client, experiment=experiment)["rows"] for run in row["runs"]]
    answer = matrix(client, runs=",".join([*ids, *added]))
    assert (answer["looks"], answer["planned"]) == ("any time", None)
    cell = cells(answer)["dapo"]
    # At four seeds t has to exceed 7.2, where a single look asks for 3.2: this t is 41.
    assert (cell["versus"]["n"], cell["verdict"]) == (4, "better")
    again = matrix(client, runs=",".join([*ids, *added]), planned=4)
    assert again["looks"] == "planned"
    assert cells(again)["dapo"]["versus"]["p"] < cell["versus"]["p"]
    beyond = matrix(client, runs=",".join([*ids, *added]), planned=3)
    assert beyond["looks"] == "any time"
    assert "more than the 3 planned seeds" in beyond["notes"][0]


def test_an_undecided_difference_says_how_many_seeds_would_decide_it(client, database):
    with database.sessions.begin() as session:
        experiment = launched(
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


def test_without_a_direction_a_difference_is_higher_or_lower(client, database):
    with database.sessions.begin() as session:
        for variant, base in (("a", 40.0), ("b", 80.0)):
            for seed in range(6):
                value = base + seed + (seed % 2 if variant == "b" else 0)
                trained(session, variant, seed, value, metric="length/mean")
        ids = [run.id for run in session.scalars(select(Run).order_by(Run.id))]
    answer = matrix(
        client, runs=f"{','.join(ids[:6])};{','.join(ids[6:])}", metrics="length/mean", baseline=ids[7]
    )
    assert answer["baseline"] == 1
    # The mean of the last ten steps: (.1 + 40) / 2 and so on.
    assert cells(answer, "length/mean:final")["a"]["verdict"] == "lower"


@pytest.mark.parametrize(
    ("dapo", "verdict", "phrase"),
    [
        ((0.6, 0.7, None), "no claim", "1 of 3 runs of dapo have no value here"),
        ((0.6, 0.7, math.nan), "no claim", "1 of 3 runs of dapo end with a value that is not finite"),
        ((None, None, None), "no claim", "dapo has no value here"),
        ((0.5, 0.6, 0.4), "no claim", "The differences do not vary"),
    ],
)
def test_what_cannot_be_claimed_is_said_in_one_sentence(client, database, dapo, verdict, phrase):
    with database.sessions.begin() as session:
        experiment = launched(session, [0, 1, 2], grpo=(0.5, 0.6, 0.4), dapo=dapo)
    cell = cells(matrix(client, experiment=experiment))["dapo"]
    assert cell["verdict"] == verdict
    assert phrase in cell["reason"]


def test_one_seed_is_no_claim_and_says_how_many_an_interval_needs(client, database):
    with database.sessions.begin() as session:
        experiment = launched(session, [0], grpo=(0.5,), dapo=(0.6,))
    cell = cells(matrix(client, experiment=experiment))["dapo"]
    assert (cell["verdict"], cell["more_seeds"]) == ("no claim", 3)
    assert cell["versus"]["mean"] == pytest.approx(0.1)
    assert cell["reason"] == "One seed says nothing about how far another one would lie."


def test_of_two_runs_of_one_seed_the_first_counts(client, database):
    with database.sessions.begin() as session:
        runs = [
            trained(session, "grpo", 0, 0.5),
            trained(session, "grpo", 0, 0.9),
            trained(session, "grpo", 1, 0.7),
        ]
        ids = ",".join(run.id for run in runs)
    answer = matrix(client, runs=ids)
    assert answer["notes"] == ["grpo has several runs of seed 0; only the one launched first counts."]
    cell = cells(answer)["grpo"]
    assert (cell["mean"], cell["values"]) == (pytest.approx(0.6), [0.5, None, 0.7])
    assert [run["counts"] for run in answer["rows"][0]["runs"]] == [True, False, True]


def test_unfinished_and_failed_runs_count_in_no_difference(client, database):
    with database.sessions.begin() as session:
        runs = [trained(session, "grpo", seed, 0.5 + seed / 100) for seed in range(5)]
        runs += [trained(session, "dapo", seed, 0.7 + seed / 50) for seed in range(4)]
        runs.append(trained(session, "dapo", 4, 0.0, status="failed"))
        ids = ",".join(run.id for run in runs)
    cell = cells(matrix(client, runs=ids))["dapo"]
    assert (cell["n"], cell["versus"]["n"]) == (5, 4)


def test_readings(client, database):
    with database.sessions.begin() as session:
        run = make_run(session, status="finished", last_step=4)
        other_run = make_run(session, status="finished", last_step=4, seed=1)
        for measured, tokens in ((run, 100.0), (other_run, 50.0)):
            write_metric(session, measured, METRIC, {step: step / 10 for step in (0, 2, 4)})
            write_metric(session, measured, "tokens/total", {step: tokens * step for step in (1, 2, 3, 4)})
            write_metric(
                session, measured, "time/wall_seconds", {step: 1.5 * step for step in (0, 1, 2, 3, 4)}
            )
        ids = f"{run.id},{other_run.id}"
    columns = ["final", "best", "equal_tokens", "auc"]
    columns += ["steps_to:0.2", "tokens_to:0.2", "seconds_to:0.2", "steps_to:0.9"]
    answer = matrix(client, runs=ids, metrics=",".join(f"{METRIC}:{column}" for column in columns))
    assert answer["tokens"] == 200
    values = {column: answer["rows"][0]["cells"][f"{METRIC}:{column}"]["values"] for column in columns}
    assert values == {
        "final": [0.4, 0.4],
        "best": [0.4, 0.4],
        "equal_tokens": [0.2, 0.4],
        "auc": [pytest.approx(0.2), pytest.approx(0.2)],
        "steps_to:0.2": [2, 2],
        "tokens_to:0.2": [200, 100],
        "seconds_to:0.2": [3, 3],
        "steps_to:0.9": [None, None],
    }
    late = answer["rows"][0]["cells"][f"{METRIC}:steps_to:0.9"]
    assert (late["reached"], late["n"], late["mean"]) == (0, 0, None)
    assert [column["better"] for column in answer["columns"]] == ["up"] * 4 + ["down"] * 4


def imported(session, variant, seed, *, accuracy=0.9, tokens=False):
    """A run of another trainer that ends at an accuracy, and may lack it or the tokens."""
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
def test_a_threshold_that_was_missed_is_told_from_what_was_not_recorded(
    client, database, runs, reading, reached, reason
):
    with database.sessions.begin() as session:
        ids = [trained(session, "grpo", seed, 0.9).id for seed in range(3)]
        ids += [imported(session, "dapo", seed, **fields) for seed, fields in enumerate(runs)]
    key = f"{METRIC}:{reading}:0.5"
    cell = cells(matrix(client, runs=",".join(ids), metrics=key, planned=3), key)["dapo"]
    assert (cell["reached"], cell["verdict"], cell["reason"]) == (reached, "no claim", reason)


def test_a_metric_of_two_scales_is_not_compared(client, database):
    with database.sessions.begin() as session:
        runs = [
            trained(session, name, seed, 0.5, config=config, metric="reward/mean")
            for name, config in (("grpo", {}), ("dapo", {"preset": "dapo"}))
            for seed in (0, 1)
        ]
        ids = ",".join(run.id for run in runs)
    cell = cells(matrix(client, runs=ids, metrics="reward/mean"), "reward/mean:final")["dapo"]
    assert (cell["verdict"], cell["versus"]) == ("not comparable", None)
    assert "length.penalty.type" in cell["reason"]


def weighted(session, variant, values, *, heavy):
    """Runs that end at the values, by seed from 0; in those of the seeds `heavy` correctness weighs 1.2."""
    runs = []
    for seed, value in enumerate(values):
        run = trained(session, variant, seed, value, metric="reward/mean")
        if seed in heavy:
            terms = [{**term, "weight": 1.2} for term in run.config["rewards"]]
            run.config = run.config | {"rewards": terms}
            run.config_hash = "f" * 64
        runs.append(run.id)
    return ",".join(runs)


@pytest.mark.parametrize(
    ("heavy", "reason"),
    [
        ({1, 2}, "The scale of some of its runs differs from the baseline's: rewards.correctness.weight."),
        ({0, 1, 2}, "Its scale differs from the baseline's: rewards.correctness.weight."),
    ],
)
def test_a_row_of_which_any_run_has_another_scale_is_not_compared(client, database, heavy, reason):
    with database.sessions.begin() as session:
        plain = weighted(session, "grpo", (0.50, 0.512, 0.531), heavy=())
        mixed = weighted(session, "dapo", (0.60, 0.614, 0.629), heavy=heavy)
    answer = matrix(client, runs=f"{plain};{mixed}", metrics="reward/mean", planned=3)
    cell_by_variant = cells(answer, "reward/mean:final")
    assert (cell_by_variant["dapo"]["verdict"], cell_by_variant["dapo"]["reason"]) == (
        "not comparable",
        reason,
    )
    assert (cell_by_variant["dapo"]["versus"], cell_by_variant["grpo"]["verdict"], answer["tests"]) == (
        None,
        "baseline",
        0,
    )


def test_nothing_is_compared_with_a_baseline_of_several_scales(client, database):
    with database.sessions.begin() as session:
        mixed = weighted(session, "grpo", (0.50, 0.512, 0.531), heavy={1})
        plain = weighted(session, "dapo", (0.60, 0.614, 0.629), heavy=())
    answer = matrix(client, runs=f"{mixed};{plain}", metrics="reward/mean", planned=3)
    assert answer["tests"] == 0
    for cell in cells(answer, "reward/mean:final").values():
        assert cell["verdict"] == "not comparable"
        assert cell["reason"] == "The runs of the baseline have several scales: rewards.correctness.weight."


def test_the_scale_of_a_run_that_does_not_count_is_not_asked(client, database):
    with database.sessions.begin() as session:
        base = weighted(session, "grpo", (0.50, 0.512, 0.531), heavy=())
        plain = weighted(session, "dapo", (0.60, 0.614, 0.629), heavy=())
        again = weighted(session, "dapo", (0.6,), heavy={0})
    answer = matrix(client, runs=f"{base};{plain},{again}", metrics="reward/mean", planned=3)
    assert cells(answer, "reward/mean:final")["dapo"]["verdict"] == "better"


def test_runs_that_are_gone_are_named(client, database):
    with database.sessions.begin() as session:
        run = trained(session, "grpo", 0, 0.5).id
    assert matrix(client, runs=f"{run},gone")["missing"] == ["gone"]
    assert errors(client, runs="gone,too") == [
        ("runs", "none of these runs exists; they may have been deleted")
    ]
    (error,) = errors(client, runs=run, baseline="01DELETED")
    assert error == (
        "baseline",
        "the baseline '01DELETED' is not among these runs, it may have been deleted; there are: grpo",
    )


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


def test_a_fork_has_a_row_of_its_own_beside_the_run_that_it_left(client, database):
    with database.sessions.begin() as session:
        parents = [trained(session, "grpo", seed, 0.5) for seed in (0, 1)]
        forks = [trained(session, "grpo", run.seed, 0.7) for run in parents]
        for fork, run in zip(forks, parents, strict=True):
            fork.parent_run, fork.fork_step = run.id, 1
    rows = matrix(client, runs=",".join(run.id for run in [*parents, *forks]))["rows"]
    assert [[run["id"] for run in row["runs"]] for row in rows] == [
        [run.id for run in parents],
        [run.id for run in forks],
    ]
    first, second = (row["variant"] for row in rows)
    assert second == f"{first} · fork at 1"


@pytest.mark.nightly
def test_five_hundred_groups_of_one_run_are_rows_without_a_claim(client, database):
    with database.sessions.begin() as session:
        ids = [trained(session, f"lr={n}", 0, n / 500).id for n in range(500)]
    answer = matrix(client, runs=";".join(ids))
    assert (len(answer["rows"]), answer["tests"]) == (500, 499)
    verdicts = [row["cells"][FINAL]["verdict"] for row in answer["rows"]]
    assert verdicts == ["baseline"] + ["no claim"] * 499


def test_an_unchanged_matrix_is_not_sent_again(client, database):
    with database.sessions.begin() as session:
        experiment = launched(session, [0, 1], grpo=(0.5, 0.6))
    first = client.get("/api/v1/matrix", params={"experiment": experiment})
    again = client.get(
        "/api/v1/matrix", params={"experiment": experiment}, headers={"If-None-Match": first.headers["etag"]}
    )
    assert again.status_code == 304


def test_a_semicolon_behind_a_single_group_keeps_it_one_row(client, database):
    with database.sessions.begin() as session:
        runs = [trained(session, variant, 0, 0.5) for variant in ("grpo", "dapo")]
    ids = ",".join(run.id for run in runs)
    assert [len(row["runs"]) for row in matrix(client, runs=f"{ids};")["rows"]] == [2]
    assert [len(row["runs"]) for row in matrix(client, runs=ids)["rows"]] == [1, 1]
