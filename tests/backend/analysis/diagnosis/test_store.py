"""Tests of stored verdicts, for ended, running and imported runs."""

from typing import Any

import pytest
from sqlalchemy import select, update

from backend.analysis.diagnosis.diagnose import diagnose
from backend.analysis.diagnosis.store import find_unjudged_runs, judge_run, judge_runs, store_verdict
from backend.metrics.store import write_series
from backend.storage.models import Event, Run
from tests.backend.analysis.diagnosis.logs import change_series, healthy
from tests.backend.analysis.diagnosis.test_online import COLLAPSE
from tests.factories import make_attempt, make_run


@pytest.fixture
def store_run(database):
    """A function that stores a log as a run and returns its id."""

    def store_log(log, **fields):
        with database.sessions.begin() as session:
            last = max((int(series.steps[-1]) for series in log.series.values() if len(series)), default=0)
            run = make_run(session, **{"status": "finished", "attempt": 1, "last_step": last} | fields)
            make_attempt(session, run, 1, from_step=-1)
            series = {name: (points.steps, points.values) for name, points in log.series.items()}
            write_series(session, run.id, 1, series)
            return run.id

    return store_log


def judge_all(database):
    with database.sessions() as session:
        runs = find_unjudged_runs(session)
    for _ in judge_runs(database.sessions, runs):
        pass
    return runs


def diagnosis_row(database, run_id):
    with database.sessions() as session:
        return session.scalars(select(Run).where(Run.id == run_id)).one()


def test_ended_runs_without_a_verdict_are_judged(database, store_run):
    good_run, bad_run = store_run(healthy()), store_run(COLLAPSE, status="stopped")
    assert set(judge_all(database)) == {good_run, bad_run}
    run = diagnosis_row(database, bad_run)
    assert (run.verdict, run.cause, run.judged_step) == ("collapsed", "entropy_explosion", 120)
    assert run.onset_healthy <= 70 <= run.onset_sick
    run = diagnosis_row(database, good_run)
    assert (run.verdict, run.cause, run.onset_sick) == ("healthy", "", None)
    assert judge_all(database) == []


@pytest.mark.parametrize("status", ["queued", "running"])
def test_a_training_run_is_left_to_its_trainer(database, store_run, status):
    store_run(COLLAPSE, status=status)
    assert judge_all(database) == []


def test_a_pushed_run_is_judged_while_it_trains_and_a_new_verdict_is_reported_once(database, store_run):
    run_id = store_run(COLLAPSE, status="running", origin="trl", writer="node", writer_key="k")
    judge_all(database)
    assert diagnosis_row(database, run_id).verdict == "collapsed"
    with database.sessions.begin() as session:
        session.execute(update(Run).where(Run.id == run_id).values(judged_step=119))
    judge_all(database)
    with database.sessions() as session:
        [event] = session.scalars(select(Event).where(Event.run_id == run_id))
    assert (event.kind, event.level, event.data["verdict"]) == ("diagnosis", "error", "collapsed")


def test_a_run_with_new_steps_is_judged_again(database, store_run):
    run_id = store_run(COLLAPSE, status="paused", judged_step=60, verdict="healthy")
    judge_all(database)
    assert diagnosis_row(database, run_id).verdict == "collapsed"


def test_newer_detectors_judge_ended_runs_again(database, store_run, monkeypatch):
    run_id = store_run(COLLAPSE)
    assert judge_all(database) == [run_id]
    monkeypatch.setattr("backend.analysis.diagnosis.store.VERSION", 1_000)
    assert judge_all(database) == [run_id]
    assert diagnosis_row(database, run_id).judged_by == 1_000
    assert judge_all(database) == []


def test_a_verdict_that_comes_too_late_is_not_stored(database, store_run):
    run_id = store_run(COLLAPSE)
    with database.sessions() as session:
        judgement = judge_run(session, run_id)
    with database.sessions.begin() as session:
        session.execute(update(Run).where(Run.id == run_id).values(status="running"))
        store_verdict(session, judgement)
    assert diagnosis_row(database, run_id).verdict is None


@pytest.mark.parametrize("fields", [{"steps": 0, "last_step": 0}, {"status": "stopped", "last_step": 0}])
def test_a_run_without_steps_is_checked_once_and_gets_no_verdict(database, store_run, fields):
    run_id = store_run(healthy(0), **fields)
    assert judge_all(database) == [run_id]
    assert judge_all(database) == []
    assert diagnosis_row(database, run_id).verdict is None


def test_a_failing_detector_affects_only_its_run(database, store_run, monkeypatch):
    broken_one, healthy_run = store_run(healthy(50)), store_run(healthy())

    def fail_on_short(log):
        if len(log.series["reward/accuracy"]) == 50:
            raise ZeroDivisionError
        return diagnose(log)

    monkeypatch.setattr("backend.analysis.diagnosis.store.diagnose", fail_on_short)
    judge_all(database)
    assert diagnosis_row(database, broken_one).verdict is None
    assert diagnosis_row(database, healthy_run).verdict == "healthy"
    assert judge_all(database) == []


def test_a_run_deleted_during_judging_stops_nothing(database, store_run):
    run_id = store_run(healthy())
    for _ in judge_runs(database.sessions, ["gone", run_id]):
        pass
    assert diagnosis_row(database, run_id).verdict == "healthy"


def test_filter_sort_order_and_diagnosis_agree(client):
    sessions = client.app.state.lab.sessions
    runs = {}
    late_fall = change_series(healthy(), 100, reward__accuracy=lambda values: values * 0.05)
    for name, log in {"good": healthy(), "early": COLLAPSE, "late": late_fall}.items():
        with sessions.begin() as session:
            run = make_run(session, name=name, status="finished", attempt=1, last_step=120)
            make_attempt(session, run, 1, from_step=-1)
            series = {metric: (points.steps, points.values) for metric, points in log.series.items()}
            write_series(session, run.id, 1, series)
            runs[name] = run.id
    for _ in judge_runs(sessions, list(runs.values())):
        pass

    def list_run_names(query):
        return [run["name"] for run in client.get(f"/api/v1/runs?{query}").json()["items"]]

    assert sorted(list_run_names("verdict=collapsed")) == ["early", "late"]
    assert list_run_names("verdict=collapsed,healthy&sort=onset") == ["early", "late", "good"]
    assert list_run_names("sort=-onset")[:2] == ["late", "early"]
    assert list_run_names("sort=-verdict")[0] == "good"
    assert client.get("/api/v1/runs?verdict=ill").status_code == 422
    for run_id in runs.values():
        run_json = client.get(f"/api/v1/runs/{run_id}").json()
        diagnosis = client.get(f"/api/v1/runs/{run_id}/diagnosis").json()
        assert (run_json["verdict"], run_json["onset"]) == (diagnosis["verdict"], diagnosis["onset"])
        assert run_json["cause"] == (diagnosis["causes"][0]["cause"] if diagnosis["causes"] else "")
        assert run_json["judged_step"] == 120


def test_pages_sorted_by_onset_hold_every_run_once(client):
    with client.app.state.lab.sessions.begin() as session:
        run_ids = {make_run(session, onset_sick=onset).id for onset in (5, None, 3, None, 5, 9, None)}
    for sort in ("onset", "-onset", "verdict"):
        listed_ids: list[str] = []
        page: dict[str, Any] = {"next": ""}
        while page["next"] is not None:
            page = client.get(f"/api/v1/runs?sort={sort}&limit=2&cursor={page['next']}").json()
            listed_ids += [run["id"] for run in page["items"]]
        assert len(listed_ids) == len(run_ids)
        assert set(listed_ids) == run_ids
