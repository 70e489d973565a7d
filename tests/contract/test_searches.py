"""Tests of searches on both databases: launched, advanced, killed between writes, and stopped."""

import math
from types import SimpleNamespace

import pytest
from sqlalchemy import event, func, select, update

from backend.experiments.searches import advance as advancing
from backend.experiments.searches import budget
from backend.experiments.searches.advance import advance
from backend.experiments.searches.schemas import SearchItem
from backend.metrics.store import write_points
from backend.service.maintenance.reconciler import Reconciler
from backend.storage.models import Attempt, Event, Experiment, Run, SearchTrial, Worker
from tests.contract.test_experiments_api import count, launch
from tests.factories import make_attempt

RATE_KNOB = {"path": "optimizer.lr", "values": "1e-5..1e-2 log"}
BASE_CONFIG = {"steps": 40, "evaluation": {"every": 10}}
MEDIAN_PRUNING = {"pruner": "median", "first_rung": 0.25, "prune_sick": False, "max_active_runs": 8}
SEARCH_BODY = {
    "name": "search",
    "base": BASE_CONFIG,
    "variants": [{"name": "grpo", "preset": "grpo"}],
    "seeds": [0, 1, 2],
}


def body(knobs=(RATE_KNOB,), *, seeds=(0, 1, 2), base=(), **fields):
    search = fields.pop("search", {})
    sweep = {"method": "search", "cells": 6, "seed": 3, "knobs": list(knobs), "search": search} | fields
    return SEARCH_BODY | {"seeds": list(seeds), "sweep": sweep, "base": BASE_CONFIG | dict(base)}


def final_accuracy(config):
    """Return the final accuracy of a run with this learning rate, which is best at 1e-3."""
    return 0.8 - 0.2 * abs(math.log10(config["optimizer"]["lr"]) + 3)


@pytest.fixture
def manual_service(client, database, settings):
    """A service whose runs are trained by hand."""

    def begin(**fields):
        response = launch(client, body(**fields))
        assert response.status_code == 201, response.text
        return response.json()["id"]

    def step(search):
        return advance(database.sessions, settings, search)

    def runs(*statuses):
        with database.sessions() as session:
            query = select(Run).order_by(Run.created_at, Run.id)
            return session.scalars(query.where(Run.status.in_(statuses)) if statuses else query).all()

    def train(run, values, status="running", **fields):
        """Record accuracies by step, and set the run's status."""
        with database.sessions.begin() as session:
            if session.get_one(Run, run.id).attempt == 0:
                make_attempt(session, run, 1, from_step=-1)
            points = [(accuracy_step, {"eval/accuracy": value}) for accuracy_step, value in values.items()]
            write_points(session, run.id, 1, points)
            columns = {"status": status, "attempt": 1, "last_step": max(values, default=0)} | fields
            session.execute(update(Run).where(Run.id == run.id).values(**columns))

    def finish(run, value=None):
        end = final_accuracy(run.config) if value is None else value
        train(
            run, {accuracy_step: end * accuracy_step / 40 for accuracy_step in (10, 20, 30, 40)}, "finished"
        )

    def current(search):
        response = client.get("/api/v1/searches", params={"experiment": search})
        assert response.status_code == 200, response.text
        [item] = response.json()["items"]
        return SearchItem.model_validate(item)

    def drive(search, max_rounds=200):
        """Advance the search and finish its runs one after the other until nothing remains to do."""
        for _ in range(max_rounds):
            has_advanced = step(search)
            queued_runs = runs("queued")
            if queued_runs:
                finish(queued_runs[0])
            elif not has_advanced:
                return current(search)
        raise AssertionError("the search does not end")

    return SimpleNamespace(**locals())


def test_a_search_tries_chooses_compares_and_ends(manual_service, client, database):
    search = manual_service.begin()
    detail = client.get(f"/api/v1/experiments/{search}").json()
    assert detail["request"]["sweep"]["method"] == "search"
    ended_search = manual_service.drive(search)
    assert (ended_search.status, ended_search.reason) == ("finished", "6 configurations were tried, as asked")
    assert [trial.number for trial in ended_search.trials] == [1, 2, 3, 4, 5, 6]
    assert all(trial.state == "finished" for trial in ended_search.trials)
    values = {trial.number: trial.value for trial in ended_search.trials}
    best = sorted(values, key=lambda number: -values[number])[:3]
    assert ended_search.best == best[0]
    assert [finalist.number for finalist in ended_search.finalists] == best
    assert [(finalist.n, finalist.waiting) for finalist in ended_search.finalists] == [(2, 0)] * 3
    assert ended_search.finalists[0].mean == pytest.approx(values[best[0]])
    assert ended_search.verdict.startswith(ended_search.trials[best[0] - 1].variant + ": eval/accuracy ")
    with database.sessions() as session:
        seeds = session.execute(select(Run.variant, func.count()).group_by(Run.variant)).all()
    assert sorted(n for _, n in seeds) == [1, 1, 1, 3, 3, 3]
    assert [trial.best for trial in ended_search.trials] == [
        max(list(values.values())[: k + 1]) for k in range(6)
    ]
    assert ended_search.events[0].message == "the search finished: 6 configurations were tried, as asked"
    assert manual_service.step(search) is False


def test_decisions_depend_only_on_the_rows(manual_service, database):
    """The same values lead to the same configurations, regardless of the process and the number of calls."""
    first = manual_service.drive(manual_service.begin(cells=14, seeds=[0]))
    second = manual_service.drive(manual_service.begin(cells=14, seeds=[0]))
    assert [trial.values for trial in first.trials] == [trial.values for trial in second.trials]
    late_rates = [trial.values[0] for trial in first.trials[10:]]
    assert (
        sum(abs(math.log10(rate) + 3) for rate in late_rates) / len(late_rates) < 1.0
    )  # the search follows the results


def test_a_run_that_falls_behind_the_median_is_pruned_with_a_reason(manual_service, database):
    search = manual_service.begin(search=MEDIAN_PRUNING, cells=8)
    for accuracy in (0.5, 0.6, 0.7):
        [run] = manual_service.runs("queued")
        manual_service.finish(run, accuracy)
        assert manual_service.step(search)
    [run] = manual_service.runs("queued")
    manual_service.train(run, {0: 0.9, 5: 0.0})
    assert manual_service.step(search)  # noted, but before the first rung
    assert manual_service.runs("running")[0].requested_action == ""
    manual_service.train(run, {10: 0.1})
    assert manual_service.step(search)
    assert manual_service.runs("running")[0].requested_action == "prune"
    pruned_trial = manual_service.current(search).trials[3]
    assert pruned_trial.reason == "eval/accuracy 0.1 at step 10 is behind the median of the finished runs"
    assert (pruned_trial.state, pruned_trial.counts) == ("running", False)
    manual_service.train(run, {10: 0.1}, "stopped", requested_action="")
    current_search = manual_service.current(search)
    assert current_search.trials[3].state == "pruned"
    assert current_search.steps_saved == pytest.approx(30 / 160)
    with database.sessions() as session:
        messages = session.scalars(
            select(Event.message).where(Event.run_id == run.id, Event.kind == "search")
        )
        assert f"pruned: {pruned_trial.reason}" in messages.all()


def test_halving_lets_the_best_third_continue(manual_service, database):
    search = manual_service.begin(
        search={"pruner": "halving", "first_rung": 0.25, "max_active_runs": 9}, cells=9
    )
    with database.sessions.begin() as session:
        session.add(Worker(id="w", host="h", pid=1, slot=0, device="cpu"))
    requested_actions = []
    for accuracy in (0.3, 0.5, 0.4, 0.6):
        [run] = manual_service.runs("queued")
        manual_service.train(run, {10: accuracy})
        while manual_service.step(search):
            pass
        requested_actions.append(
            next(
                running_run.requested_action
                for running_run in manual_service.runs("running")
                if running_run.id == run.id
            )
        )
    assert requested_actions == ["", "", "prune", ""]  # the first one was alone at its rung
    assert "behind the best third" in manual_service.current(search).trials[2].reason


@pytest.mark.parametrize(
    ("verdict", "step", "is_pruned"),
    [
        ("collapsed", 10, True),
        ("declining", 10, True),
        ("never_learned", 10, False),
        ("never_learned", 20, True),
        ("healthy", 20, False),
        (None, None, False),
    ],
)
def test_a_run_with_a_bad_verdict_is_pruned(manual_service, verdict, step, is_pruned):
    search = manual_service.begin(search={"pruner": "none"})
    [run] = manual_service.runs("queued")
    manual_service.train(run, {}, verdict=verdict, judged_step=step)
    manual_service.step(search)
    assert (manual_service.runs("running")[0].requested_action == "prune") is is_pruned


@pytest.mark.parametrize("status", ["queued", "paused"])
def test_a_queued_run_is_pruned_immediately_and_can_be_resumed(manual_service, client, status):
    search = manual_service.begin(search={"pruner": "none"})
    [run] = manual_service.runs("queued")
    manual_service.train(run, {10: 0.4}, status, verdict="collapsed", judged_step=10)
    assert manual_service.step(search)
    [stopped_run] = manual_service.runs("stopped")
    assert stopped_run.reason == "pruned by its search"
    assert client.post(f"/api/v1/runs/{run.id}/resume").is_success
    manual_service.step(search)
    assert manual_service.current(search).trials[0].state == "queued"  # it is not pruned again


def test_more_runs_are_queued_only_if_a_slot_is_free(manual_service, database):
    search = manual_service.begin(search={"max_active_runs": 2})
    assert manual_service.step(search) is False  # the first one waits
    [first] = manual_service.runs("queued")
    manual_service.train(first, {})
    assert manual_service.step(search) is False  # no slot is free
    with database.sessions.begin() as session:
        session.add(Worker(id="w", host="h", pid=1, slot=0, device="cpu"))
    assert manual_service.step(search)
    [second] = manual_service.runs("queued")
    manual_service.train(second, {})
    assert manual_service.step(search) is False  # two at once, as configured
    manual_service.finish(first)
    assert manual_service.step(search)


def test_two_concurrent_decisions_queue_one_run(manual_service, database, settings, monkeypatch):
    """The second decision was based on older rows, so it is dropped."""
    search = manual_service.begin()
    manual_service.finish(manual_service.runs("queued")[0])
    original_next_step = advancing._next_step

    def rival(*arguments):
        monkeypatch.setattr(advancing, "_next_step", original_next_step)
        step = original_next_step(*arguments)
        assert advance(database.sessions, settings, search)
        return step

    monkeypatch.setattr(advancing, "_next_step", rival)
    assert advance(database.sessions, settings, search) is False
    assert len(manual_service.runs("queued")) == 1
    assert count(database, SearchTrial) == 2


class Killed(BaseException):
    """Simulated end of the process."""


def test_a_kill_at_any_write_loses_and_duplicates_nothing(manual_service, database):
    """The process dies at the n-th statement of a step, for every n, and the search ends as without kills."""
    expected = manual_service.drive(manual_service.begin(cells=4, seeds=[0, 1], search={"top": 2}))
    search = manual_service.begin(cells=4, seeds=[0, 1], search={"top": 2})
    limits = {"statements": math.inf}

    def die(*_args):
        limits["statements"] -= 1
        if limits["statements"] < 0:
            raise Killed

    event.listen(database.engine, "before_cursor_execute", die)
    kills = 0
    try:
        for _ in range(60):
            has_advanced, allowed_statements = False, 0
            while True:
                limits["statements"] = allowed_statements
                try:
                    has_advanced = manual_service.step(search)
                    break
                except Killed:
                    kills += 1
                    allowed_statements += 1
            limits["statements"] = math.inf
            queued_runs = manual_service.runs("queued")
            if queued_runs:
                manual_service.finish(queued_runs[0])
            elif not has_advanced:
                break
    finally:
        limits["statements"] = math.inf
        event.remove(database.engine, "before_cursor_execute", die)
    assert kills > 50
    ended_search = manual_service.current(search)
    assert ended_search.status == "finished"
    assert [(trial.values, trial.value) for trial in ended_search.trials] == [
        (trial.values, trial.value) for trial in expected.trials
    ]
    assert ended_search.finalists == expected.finalists


def test_configurations_that_cannot_run_are_skipped_with_a_reason(manual_service):
    knob = {"path": "optimizer.lr", "values": [1e-3, -1.0, 1e-4]}
    ended_search = manual_service.drive(manual_service.begin(knobs=[knob], cells=3, seeds=[0]))
    refused_trials = [trial for trial in ended_search.trials if trial.state == "refused"]
    assert [trial.values for trial in refused_trials] == [[-1.0]]
    assert "got -1.0" in refused_trials[0].reason
    assert refused_trials[0].run is None
    assert ended_search.status == "finished"


def test_if_all_runs_fail_the_search_ends_with_a_reason(manual_service):
    search = manual_service.begin(cells=20)
    for _ in range(40):
        if manual_service.current(search).status == "finished":
            break
        if not manual_service.step(search):
            [run] = manual_service.runs("queued")
            manual_service.train(run, {}, "failed", reason="out of memory")
    ended_search = manual_service.current(search)
    assert len(ended_search.trials) == 5
    assert ended_search.reason == (
        "none of the first 5 runs has a value of eval/accuracy: out of memory; no configuration has a value"
    )
    assert (ended_search.best, ended_search.finalists, ended_search.verdict) == (None, [], "")


def test_nonfinite_or_missing_values_never_win(manual_service):
    search = manual_service.begin(cells=4, seeds=[0, 1], search={"top": 4})
    values = [{40: float("nan")}, {40: float("inf")}, {}, {40: 0.2}]
    for number, reports in enumerate(values):
        manual_service.train(manual_service.runs("queued")[-1], reports, "finished")
        manual_service.step(search)
        assert len(manual_service.current(search).trials) == min(4, number + 2)
    ended_search = manual_service.drive(search)
    assert [trial.state for trial in ended_search.trials] == ["no value", "no value", "no value", "finished"]
    assert [finalist.number for finalist in ended_search.finalists] == [4]


def test_a_search_is_stopped_with_its_runs(manual_service, client):
    search = manual_service.begin()
    [run] = manual_service.runs("queued")
    manual_service.train(run, {10: 0.5})
    response = client.post(f"/api/v1/searches/{search}/stop")
    assert (response.status_code, response.json()["status"]) == (200, "stopped")
    assert manual_service.runs("running")[0].requested_action == "stop"
    assert manual_service.step(search) is False
    second_response = client.post(f"/api/v1/searches/{search}/stop")
    assert (second_response.status_code, second_response.json()["detail"]) == (409, "this search has stopped")


@pytest.mark.parametrize("hours", [4.9, 6.5])
def test_the_budget_leaves_room_for_the_additional_seeds(manual_service, database, hours):
    """With runs of an hour, two configurations and two of their additional seeds fit into five hours."""
    search = manual_service.begin(cells=9, seeds=[0, 1], search={"hours": hours, "top": 2})
    for _ in range(60):
        has_advanced = manual_service.step(search)
        queued_runs = manual_service.runs("queued")
        if not queued_runs and not has_advanced:
            break
        for run in queued_runs[:1]:
            manual_service.finish(run)
            with database.sessions.begin() as session:
                session.execute(update(Attempt).values(ended_at=Attempt.started_at + 3600))
    ended_search = manual_service.current(search)
    assert ended_search.status == "finished"
    assert ended_search.hours <= hours
    assert "does not fit into" in ended_search.reason
    assert len(ended_search.trials) == int(hours) - 2
    assert [finalist.n for finalist in ended_search.finalists] == [1, 1]


@pytest.mark.parametrize(
    ("fields", "path", "phrase"),
    [
        ({"cells": 501}, "sweep.cells", "must be at most 500, got 501"),
        ({"cells": 500}, "sweep", "506 runs; one experiment may have 500"),
        ({"knobs": [{"path": "optimizer.lr", "values": "1..0"}]}, "sweep.knobs.0.values", "ends below"),
        ({"knobs": [{"path": "steps", "values": "10..20"}]}, "sweep.knobs", "leave `steps` out"),
        (
            {"knobs": [{"path": "optimizer.lr", "values": [-1, -2]}]},
            "sweep.optimizer.lr",
            "must be greater than 0",
        ),
        ({"search": {"metric": "no/such"}}, "sweep.search.metric", "there is no metric"),
        ({"search": {"metric": "policy/entropy"}}, "sweep.search.direction", "choose a direction"),
        ({"base": {"evaluation": {"every": 0}}}, "sweep.search.metric", "set evaluation.every"),
        (
            {
                "search": {"metric": "reward/mean"},
                "knobs": [{"path": "rewards.0.weight", "values": [1.0, 2.0]}],
            },
            "sweep.search.metric",
            "changes its scale with rewards",
        ),
        ({"search": {"hours": -1}}, "sweep.search.hours", "greater than 0"),
    ],
)
@pytest.mark.parametrize("route", ["", "/plan"])
def test_an_impossible_search_is_refused_at_its_field(client, database, route, fields, path, phrase):
    response = client.post(f"/api/v1/experiments{route}", json=body(**fields))
    if route and response.status_code == 200:
        errors = {
            f"sweep.{error['path']}": error["message"] for error in response.json()["cells"][0]["errors"]
        }
    else:
        assert response.status_code == 422, response.text
        errors = {error["path"]: error["message"] for error in response.json()["errors"]}
    assert phrase in errors[path]
    assert count(database, Experiment) == 0


def test_a_search_that_this_version_cannot_read_ends_with_a_reason(manual_service, database, settings):
    search = manual_service.begin(seeds=[0])
    manual_service.finish(manual_service.runs("queued")[0])
    with database.sessions.begin() as session:
        row = session.get_one(Experiment, search)
        row.request = row.request | {"variants": [{"name": "grpo", "preset": "of another version"}]}
    Reconciler(settings, database.sessions).run_once()
    ended_search = manual_service.current(search)
    assert ended_search.status == "finished"
    assert ended_search.reason.startswith("its values cannot be read any more: ")


def test_a_budget_counts_every_gpu_of_a_run_before_one_has_finished(
    manual_service, client, database, settings, monkeypatch
):
    monkeypatch.setattr(budget, "estimate_duration", lambda *_: SimpleNamespace(high=3600.0))
    with database.sessions.begin() as session:
        session.add(Worker(id="w-0", host="h", pid=1, slot=0, device="cuda:0", stats={}))
    search = manual_service.begin(
        search={"hours": 16.0, "max_active_runs": 4}, base={"resources": {"devices": 8}}, seeds=[0]
    )
    for run in manual_service.runs("queued"):
        manual_service.train(run, {10: 0.5})
    while manual_service.step(search):
        for run in manual_service.runs("queued"):
            manual_service.train(run, {10: 0.5})
    assert len(manual_service.runs()) == 2  # eight GPUs for an hour each
