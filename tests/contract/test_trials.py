"""Tests of trials of remedies through the HTTP API: plan, launch and verdict, on both databases."""

import threading

import pytest
from sqlalchemy import delete, func, select

from backend.experiments.trials.schemas import TrialItem, TrialPage, TrialPlanItem
from backend.experiments.trials.store import due_trials, settle_trial
from backend.metrics.store import write_points
from backend.runs.deletion import continue_deletions
from backend.service.maintenance.reconciler import Reconciler
from backend.storage.models import Checkpoint, Experiment, Run, Trial
from tests.backend.analysis.diagnosis.logs import change_series, healthy
from tests.factories import make_attempt, make_checkpoint, make_run

HEALTHY_LOG = healthy()
COLLAPSED_LOG = change_series(
    change_series(HEALTHY_LOG, 70, policy__entropy=lambda values: values * 4),
    75,
    reward__accuracy=lambda values: values * 0.05,
)
RUN_CONFIG = {"steps": 120, "checkpointing": {"every": 20}, "evaluation": {"every": 0}}


def store_log(session, run, log, after_step=0):
    """Store the steps of a log after the given one, as a run that has ended."""
    make_attempt(session, run, 1, from_step=after_step or -1)
    points = {}
    for name, series in log.series.items():
        for step, metric_value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            if step > after_step:
                points.setdefault(step, {})[name] = metric_value
    write_points(session, run.id, 1, sorted(points.items()))
    run.last_step, run.attempt = max(points, default=0), 1
    run.summary = {"step": run.last_step, "last": dict.fromkeys(log.series, 0.0), "best": {}}


@pytest.fixture
def make_broken_run(database, settings):
    """A function that makes a run with a log and checkpoints."""

    def make(log=COLLAPSED_LOG, *, checkpoints=(20, 40, 60, 80), config=RUN_CONFIG, **fields):
        with database.sessions.begin() as session:
            columns = {"name": "broken", "seed": 3, "status": "finished", "config": config} | fields
            run = make_run(session, **columns)
            store_log(session, run, log, after_step=fields.get("fork_step") or 0)
            for step in checkpoints:
                make_checkpoint(session, run, settings.state_dir, step=step)
        return run

    return make


def plan(client, run, **body):
    return client.post(f"/api/v1/runs/{run.id}/trials/plan", json=body)


def start_trial(client, run, key="", **body):
    headers = {"Idempotency-Key": key} if key else {}
    return client.post(f"/api/v1/runs/{run.id}/trials", json=body, headers=headers)


def load_runs(database, trial):
    with database.sessions() as session:
        query = select(Run).where(Run.experiment_id == trial["experiment"]).order_by(Run.id)
        return session.scalars(query).all()


def finish_run(database, run, log=HEALTHY_LOG, status="finished"):
    """End a run of a trial with its inherited log and a new log."""
    with database.sessions.begin() as session:
        run = session.get_one(Run, run.id)
        store_log(session, run, log, after_step=run.fork_step or 0)
        run.status = status
        run.finished_at = 1.0


def fetch_trial(client, run):
    (trial,) = client.get("/api/v1/trials", params={"run": run.id}).json()["items"]
    return trial


def index_arms(trial):
    return {arm["name"]: arm for arm in trial["verdict"]["arms"]}


def test_a_plan_follows_the_diagnosis(client, make_broken_run):
    run = make_broken_run()
    response = plan(client, run)
    assert response.status_code == 200, response.text
    TrialPlanItem.model_validate(trial_plan := response.json())
    assert (trial_plan["verdict"], trial_plan["cause"]) == ("collapsed", "entropy_explosion")
    assert (trial_plan["fork"]["run"], trial_plan["fork"]["step"], trial_plan["fork"]["due_step"]) == (
        run.id,
        60,
        60,
    )
    assert (
        trial_plan["fork"]["words"] == "Every run forks from step 60, the last checkpoint before the onset."
    )
    assert trial_plan["arms"] == [{"name": "remedy", "changes": {"optimizer.lr": 1e-4}}]
    assert (trial_plan["seeds"], trial_plan["repeat_seed"]) == ([4, 5, 6, 7, 8], 3)
    onset = trial_plan["onset"]["healthy"]
    assert trial_plan["steps"] == onset + 2 * (trial_plan["alarm"] - onset)
    assert trial_plan["alarm"] < trial_plan["steps"] <= 120
    assert (trial_plan["price"]["runs"], trial_plan["price"]["steps"]) == (
        11,
        11 * (trial_plan["steps"] - 60),
    )
    assert 0 < trial_plan["price"]["seconds_low"] <= trial_plan["price"]["seconds_high"]
    assert trial_plan["price"]["disk_bytes"] > 0
    assert trial_plan["price"]["least_p"] == pytest.approx(1 / 252)
    assert (trial_plan["errors"], trial_plan["notes"]) == ([], [])


@pytest.mark.parametrize(
    ("log", "fields", "phrase"),
    [
        (HEALTHY_LOG, {}, "the diagnosis of broken is healthy: there is nothing to try a remedy against"),
        (healthy(3), {}, "the diagnosis of broken is inconclusive"),
        (COLLAPSED_LOG, {"origin": "trl"}, "this run was imported from a TRL log and has no checkpoints"),
        (COLLAPSED_LOG, {"deleted_at": 1.0}, "broken is in the trash: restore it first"),
    ],
)
def test_a_run_that_cannot_be_tried_is_refused(client, make_broken_run, log, fields, phrase):
    run = make_broken_run(log, **fields)
    for response in (plan(client, run), start_trial(client, run)):
        assert response.status_code == 409
        assert phrase in response.json()["detail"]


@pytest.mark.parametrize(
    ("body", "path", "phrase"),
    [
        ({"steps": 60}, "steps", "expected at least 61"),
        ({"steps": 10_000_000}, "steps", "makes 109,999,340 steps in total; expected at most 100,000,000"),
        (
            {"arms": [{"name": "a", "changes": {"optimizer.lr": -1}}]},
            "arms.0.changes.optimizer.lr",
            "greater",
        ),
        ({"arms": [{"name": "a", "changes": {"nothing.at": 1}}]}, "arms.0.changes.nothing", "no such field"),
        ({"arms": [{"name": "a", "changes": {}}]}, "arms.0.changes", "changes nothing"),
        ({"arms": [{"name": "a", "changes": {"optimizer.lr": 3e-4}}]}, "arms.0.changes", "changes nothing"),
        ({"arms": [{"name": "a", "changes": {"seed": 9}}]}, "arms.0.changes.seed", "is set by the trial"),
        (
            {"arms": [{"name": "a", "changes": {"policy.name": "tiny_moe"}}]},
            "arms.0.changes.policy.name",
            "expected 'tiny'",
        ),
    ],
)
def test_a_plan_names_the_reasons_why_it_cannot_start(client, database, make_broken_run, body, path, phrase):
    run = make_broken_run()
    (error,) = plan(client, run, **body).json()["errors"]
    assert error["path"] == path
    assert phrase in error["message"]
    response = start_trial(client, run, **body)
    assert response.status_code == 422
    assert [error["path"] for error in response.json()["errors"]] == [path]
    with database.sessions() as session:
        assert session.scalars(select(Run.id)).all() == [run.id]


@pytest.mark.parametrize(
    "body",
    [
        {"cause": "update_size"},
        {"arms": []},
        {"arms": [{"name": "repeat", "changes": {"optimizer.lr": 1}}]},
        {"arms": [{"name": "a", "changes": {"x": 1}}, {"name": "a", "changes": {"x": 2}}]},
        {"seeds": 0},
        {"seeds": 21},
        {"steps": 0},
        {"arms": [{"name": "a", "changes": {"optimizer.lr": "x" * 70_000}}]},
        {"arms": [{"name": "a", "changes": {"optimizer.lr" + ".a" * 30_000: 1}}]},
        {"step": 20},
    ],
)
def test_an_invalid_body_is_refused(client, make_broken_run, body):
    assert plan(client, make_broken_run(), **body).status_code == 422


def test_no_stop_rule_ends_a_run_of_a_trial_before_it_can_be_judged(client, database, make_broken_run):
    rules = [{"type": "wall_time", "seconds": 1}, {"type": "non_finite"}, {"type": "accuracy", "value": 0.5}]
    run = make_broken_run(config=RUN_CONFIG | {"stop_rules": rules})
    trial = start_trial(client, run, seeds=1).json()
    rule_types = [
        [rule["type"] for rule in trial_run.config["stop_rules"]] for trial_run in load_runs(database, trial)
    ]
    assert rule_types == [["non_finite"]] * 3
    response = start_trial(client, run, arms=[{"name": "a", "changes": {"stop_rules": rules}}])
    assert response.json()["errors"][0]["message"] == "is set by the trial"


def test_a_trial_is_one_experiment_of_forks_with_additional_seeds(client, database, make_broken_run):
    run = make_broken_run()
    response = start_trial(client, run, seeds=2)
    assert response.status_code == 201, response.text
    TrialItem.model_validate(trial := response.json())
    rows = load_runs(database, trial)
    assert [(trial_run.variant, trial_run.seed) for trial_run in rows] == [
        ("repeat", 3),
        ("no change", 4),
        ("remedy", 4),
        ("no change", 5),
        ("remedy", 5),
    ]
    assert {(trial_run.parent_run, trial_run.fork_step, trial_run.status) for trial_run in rows} == {
        (run.id, 60, "queued")
    }
    assert {trial_run.config["steps"] for trial_run in rows} == {trial["steps"]}
    assert [trial_run.config["optimizer"]["lr"] for trial_run in rows] == [3e-4, 3e-4, 1e-4, 3e-4, 1e-4]
    assert [trial_run.config["seed"] for trial_run in rows] == [3, 4, 4, 5, 5]
    matrix = client.get("/api/v1/matrix", params={"experiment": trial["experiment"]}).json()
    assert [row["variant"] for row in matrix["rows"]] == ["repeat", "no change", "remedy"]
    messages = [event["message"] for event in client.get(f"/api/v1/runs/{run.id}/events").json()["items"]]
    assert messages == ["a trial of 5 runs was queued"]
    assert trial["verdict"]["complete"] is False
    assert trial["verdict"]["sentences"][0] == (
        "So far: 0 of 2 runs without change have ended and 0 of 2 with the remedy."
    )
    by_experiment = client.get("/api/v1/trials", params={"experiment": trial["experiment"]}).json()
    TrialPage.model_validate(by_experiment)
    assert [experiment["id"] for experiment in by_experiment["items"]] == [trial["id"]]


def test_the_same_key_starts_one_trial_for_concurrent_requests(client, database, make_broken_run):
    run = make_broken_run()
    responses = []
    threads = [
        threading.Thread(target=lambda: responses.append(start_trial(client, run, key="k", seeds=1)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {response.status_code for response in responses} == {201}
    assert len({response.json()["id"] for response in responses}) == 1
    assert start_trial(client, run, key="k", seeds=2).status_code == 409
    with database.sessions() as session:
        assert session.scalar(select(func.count()).select_from(Trial)) == 1
        assert session.scalar(select(func.count()).select_from(Run)) == 4


def test_a_remedy_that_helps_is_reported_with_its_p_value(client, database, make_broken_run, settings):
    run = make_broken_run()
    trial = start_trial(client, run).json()
    for trial_run in load_runs(database, trial):
        finish_run(database, trial_run, HEALTHY_LOG if trial_run.variant == "remedy" else COLLAPSED_LOG)
    Reconciler(settings, database.sessions).run_once()
    trial_json = fetch_trial(client, run)
    assert trial_json["judged_at"] is not None
    verdict = trial_json["verdict"]
    assert verdict["sentences"][0] == (
        "The collapse recurred in 5 of 5 runs without change and in 0 of 5 with the remedy (Fisher's exact "
        "test, one-sided p = .004)."
    )
    assert verdict["sentences"][1].startswith("reward/accuracy ended at 0.6")
    arm_runs = "".join(
        ",".join(run.id for run in load_runs(database, trial) if run.variant == arm) + ";"
        for arm in ("no change", "remedy")
    )
    matrix = client.get(
        "/api/v1/matrix", params={"runs": arm_runs, "metrics": "reward/accuracy:final"}
    ).json()
    goal_ends = [row["cells"]["reward/accuracy:final"]["mean"] for row in matrix["rows"]]
    assert [arm["goal_end"] for arm in verdict["arms"]] == pytest.approx(goal_ends)
    assert verdict["repeat"]["state"] == "repeats"
    assert index_arms(trial_json)["remedy"]["p"] == pytest.approx(1 / 252)
    events = client.get(f"/api/v1/runs/{run.id}/events").json()["items"]
    assert [event["message"] for event in events][1:] == verdict["sentences"][:1]


def test_remedies_are_tried_one_by_one_until_one_helps(
    client, database, make_broken_run, settings, monkeypatch
):
    monkeypatch.setattr("backend.service.maintenance.chores.TRIAL_PAUSE_SECONDS", 0.0)
    run = make_broken_run()
    rates = {"first": 1e-4, "second": 5e-5, "third": 2e-5}
    arms = [{"name": name, "changes": {"optimizer.lr": rate}} for name, rate in rates.items()]
    body = {"arms": arms, "seeds": 2, "one_by_one": True}
    trial_plan = plan(client, run, **body).json()
    assert (trial_plan["price"]["runs"], trial_plan["heals_in"]) == (2 * 4 + 1, 2)
    trial = start_trial(client, run, **body).json()
    reconciler = Reconciler(settings, database.sessions)
    for variants, log in (({"repeat", "no change", "first"}, COLLAPSED_LOG), ({"second"}, HEALTHY_LOG)):
        queued_runs = [trial_run for trial_run in load_runs(database, trial) if trial_run.status == "queued"]
        assert {trial_run.variant for trial_run in queued_runs} == variants
        assert not fetch_trial(client, run)["verdict"]["complete"]
        for trial_run in queued_runs:
            finish_run(database, trial_run, log)
        reconciler.run_once()
    shown_trial = fetch_trial(client, run)
    assert shown_trial["judged_at"] is not None
    assert "2 of 2 runs stayed healthy with “second”: it heals." in shown_trial["verdict"]["sentences"]
    assert [(arm["name"], arm["is_pending"]) for arm in shown_trial["verdict"]["arms"]][1:] == [
        ("first", False), ("second", False), ("third", True)
    ]  # fmt: skip
    configs = {trial_run.variant: trial_run.config for trial_run in load_runs(database, trial)}
    assert (configs["second"]["optimizer"]["lr"], configs["second"]["steps"]) == (5e-5, trial["steps"])


def test_a_next_remedy_whose_checkpoint_is_gone_ends_the_trial_with_a_reason(
    client, database, make_broken_run, settings
):
    run = make_broken_run()
    arms = [{"name": name, "changes": {"optimizer.lr": rate}} for name, rate in (("a", 1e-4), ("b", 1e-5))]
    trial = start_trial(client, run, arms=arms, seeds=1, one_by_one=True).json()
    for trial_run in load_runs(database, trial):
        finish_run(database, trial_run, COLLAPSED_LOG)
    with database.sessions.begin() as session:
        session.execute(delete(Checkpoint).where(Checkpoint.run_id == run.id))
    assert settle_trial(database.sessions, settings, trial["id"])
    assert "The next remedy could not be tried: the checkpoint of step 60 was removed" in " ".join(
        fetch_trial(client, run)["verdict"]["sentences"]
    )


def test_a_remedy_that_does_not_help_is_reported(client, database, make_broken_run, settings):
    run = make_broken_run()
    trial = start_trial(client, run).json()
    worse = change_series(COLLAPSED_LOG, 75, reward__accuracy=lambda values: values * 0)
    spared_count = 0
    for trial_run in load_runs(database, trial):
        if trial_run.variant == "remedy" and not spared_count:
            spared_count = 1
            finish_run(database, trial_run, HEALTHY_LOG)
        else:
            finish_run(database, trial_run, worse if trial_run.variant == "remedy" else COLLAPSED_LOG)
    assert settle_trial(database.sessions, settings, trial["id"])
    sentences = fetch_trial(client, run)["verdict"]["sentences"]
    assert sentences[0] == (
        "No evidence that it helps: the collapse recurred in 5 of 5 runs without change and in 4 of 5 with "
        "the remedy (Fisher's exact test, one-sided p = .50)."
    )


def test_a_collapse_that_does_not_recur_without_change_is_inconclusive(client, database, make_broken_run):
    run = make_broken_run()
    trial = start_trial(client, run, seeds=2).json()
    for trial_run in load_runs(database, trial):
        finish_run(database, trial_run, HEALTHY_LOG)
    verdict = fetch_trial(client, run)["verdict"]
    assert verdict["sentences"][0].startswith(
        "The collapse did not recur without change (0 of 2 runs; 0 of 2"
    )
    assert (verdict["repeat"]["state"], verdict["repeat"]["metric"]) == ("differs", "policy/entropy")
    assert verdict["repeat"]["step"] == 71
    assert "differs from step 71 on (first in policy/entropy)" in verdict["sentences"][-1]


def test_failed_stopped_or_deleted_runs_are_counted_separately(client, database, make_broken_run, settings):
    run = make_broken_run()
    trial = start_trial(client, run, seeds=5).json()
    rows = load_runs(database, trial)
    control = [trial_run for trial_run in rows if trial_run.variant == "no change"]
    finish_run(database, control[0], COLLAPSED_LOG, status="failed")  # it fell before that
    finish_run(database, control[1], healthy(62), status="failed")
    finish_run(database, control[2], healthy(62), status="stopped")
    client.delete(f"/api/v1/runs/{control[3].id}")
    client.delete(f"/api/v1/runs/{control[3].id}", params={"forever": True})
    continue_deletions(database.sessions, settings, seconds=10)
    for trial_run in [*[row for row in rows if row.variant != "no change"], control[4]]:
        finish_run(database, trial_run, COLLAPSED_LOG)
    trial_json = fetch_trial(client, run)
    counts = index_arms(trial_json)["no change"]
    names = ("planned", "waiting", "recurred", "spared", "unjudged", "failed", "stopped", "deleted")
    assert [counts[name] for name in names] == [5, 0, 2, 0, 0, 1, 1, 1]
    assert trial_json["verdict"]["complete"]
    assert "Not counted without change: 1 failed, 1 stopped, 1 deleted." in trial_json["verdict"]["sentences"]


def test_a_trial_waits_until_all_runs_have_ended(client, database, make_broken_run, settings):
    run = make_broken_run()
    trial = start_trial(client, run, seeds=1).json()
    *earlier_runs, last_run = load_runs(database, trial)
    for trial_run in earlier_runs:
        finish_run(database, trial_run, COLLAPSED_LOG)
    with database.sessions() as session:
        assert due_trials(session) == []
    assert not settle_trial(database.sessions, settings, trial["id"])
    verdict = fetch_trial(client, run)["verdict"]
    assert (verdict["complete"], verdict["arms"][1]["p"]) == (False, None)
    assert verdict["sentences"][0].startswith("So far: 1 of 1 runs without change have ended and 0 of 1")
    finish_run(database, last_run, COLLAPSED_LOG)
    with database.sessions() as session:
        assert due_trials(session) == [trial["id"]]
    assert settle_trial(database.sessions, settings, trial["id"])
    with database.sessions() as session:
        assert due_trials(session) == []


def test_a_verdict_outlives_its_runs_and_is_deleted_with_the_run_that_it_is_about(
    client, database, make_broken_run, settings
):
    run = make_broken_run()
    trial = start_trial(client, run, seeds=1).json()
    rows = load_runs(database, trial)
    for trial_run in rows:
        finish_run(database, trial_run, COLLAPSED_LOG)
    assert settle_trial(database.sessions, settings, trial["id"])
    verdict_before = fetch_trial(client, run)["verdict"]
    for trial_run in rows:
        client.delete(f"/api/v1/runs/{trial_run.id}")
    assert client.delete("/api/v1/runs", params={"forever": True}).status_code == 202
    continue_deletions(database.sessions, settings, seconds=10)
    trial_json = fetch_trial(client, run)
    assert (trial_json["experiment"], trial_json["verdict"]) == (None, verdict_before)
    with database.sessions() as session:
        assert session.scalar(select(func.count()).select_from(Experiment)) == 0
    client.delete(f"/api/v1/runs/{run.id}")
    client.delete(f"/api/v1/runs/{run.id}", params={"forever": True})
    assert client.get("/api/v1/trials", params={"run": run.id}).json()["items"] == []
    continue_deletions(database.sessions, settings, seconds=10)
    with database.sessions() as session:
        assert session.scalars(select(Trial.id)).all() == session.scalars(select(Run.id)).all() == []
