"""Tests of the diagnosis during training, which must not depend on interruptions."""

import logging

import pytest
from sqlalchemy import select

from backend.analysis.diagnosis import online
from backend.config.run import RunConfig
from backend.runs import lifecycle
from backend.runs.checkpoints import add_checkpoint, forget_old_checkpoints, keep_before
from backend.storage.models import Checkpoint, Event, Run
from tests.backend.analysis.diagnosis.logs import change_series, healthy
from tests.backend.analysis.diagnosis.test_online import COLLAPSE, steps_with_metrics
from tests.factories import make_run
from worker.outcome import Outcome
from worker.recording.recorder import Recorder
from worker.recording.records import StepRecord
from worker.training.online_diagnosis import OnlineDiagnosis

WARNED_LOG = change_series(healthy(), 70, policy__entropy=lambda values: values * 4)


@pytest.fixture
def queue_run(database):
    """A function that queues a run of 120 steps with these stop rules."""

    def queue(*rules, **fields):
        with database.sessions.begin() as session:
            return make_run(session, config={"steps": 120, "stop_rules": list(rules)}, **fields).id

    return queue


@pytest.fixture
def train_by_log(database):
    """A function that trains a run by a log, from its checkpoint to `last` or until a rule ends it.

    `dies` leaves the run as a killed process would, and later attempts claim it again."""

    def run(run_id, log, *, begin=-1, last=120, dies=False, saves=()):
        with database.sessions.begin() as session:
            claim = lifecycle.claim_run(session, "worker", "host")
            config = RunConfig.model_validate(claim.config)
        outcome = None
        with Recorder(database.sessions, run_id, claim.attempt, config=config) as recorder:
            recorder.begin(begin)
            diagnosis = OnlineDiagnosis(config, recorder)
            diagnosis.begin(max(begin, 0))
            for step, metrics in steps_with_metrics(log):
                if begin < step <= last and outcome is None:
                    recorder.record_step(StepRecord(step, metrics))
                    diagnosis.take(step, metrics)
                    outcome = diagnosis.reason_to_end()
                    if step in saves:
                        _save(recorder, run_id, step)
            if not dies:
                diagnosis.end(is_final=last == 120 and outcome is None)
        with database.sessions.begin() as session:
            if dies or (outcome is None and last < 120):
                lifecycle.release_run(session, run_id, claim.attempt)
            else:
                status, reason, _ = outcome or Outcome("finished")
                assert status != "queued"
                lifecycle.finish_run(session, run_id, claim.attempt, status, reason)
        return outcome

    return run


def _save(recorder, run_id, step):
    row = {"path": f"s{step}", "sha256": "", "bytes_total": 1, "manifest": {}}

    def save(session):
        add_checkpoint(session, {"run_id": run_id, "step": step, "attempt": 1, **row})
        forget_old_checkpoints(session, run_id, keep=2)

    recorder.commit(save)


def diagnosis_events(database, run_id, *, after_step=0):
    query = select(Event.step, Event.level, Event.message).where(Event.run_id == run_id)
    with database.sessions() as session:
        return session.execute(
            query.where(Event.kind == "diagnosis", Event.step > after_step).order_by(Event.id)
        ).all()


def verdict(database, run_id):
    with database.sessions() as session:
        columns = (Run.verdict, Run.onset_healthy, Run.onset_sick, Run.cause, Run.judged_step)
        return tuple(session.execute(select(*columns).where(Run.id == run_id)).one())


def kept_checkpoints(database, run_id):
    with database.sessions() as session:
        rows = session.execute(select(Checkpoint.step, Checkpoint.kept_for, Checkpoint.onset))
        return {step: (kind, onset) for step, kind, onset in rows}


def test_a_collapse_is_stored_and_reported_while_the_run_trains(database, queue_run, train_by_log):
    run_id = queue_run()
    train_by_log(run_id, COLLAPSE)
    assert verdict(database, run_id)[0::3] == ("collapsed", "entropy_explosion")
    lines = diagnosis_events(database, run_id)
    assert lines[0].level == "info"
    assert lines[-1].level == "error"
    assert lines[-1].message.startswith("verdict collapsed: Entropy exploded, between steps ")
    assert 75 < lines[-1].step <= 100


@pytest.mark.parametrize("at", [20, 73, 80, 90, 115])
@pytest.mark.parametrize("dies", [True, False])
def test_a_resumed_run_is_judged_like_an_uninterrupted_one(database, queue_run, train_by_log, at, dies):
    straight_run, resumed_run = queue_run(), queue_run()
    train_by_log(straight_run, COLLAPSE)
    train_by_log(resumed_run, COLLAPSE, last=at, dies=dies)
    back = at - 7 if dies else at
    train_by_log(resumed_run, COLLAPSE, begin=back)
    assert verdict(database, resumed_run) == verdict(database, straight_run)
    assert diagnosis_events(database, resumed_run, after_step=at) == diagnosis_events(
        database, straight_run, after_step=at
    )
    if not dies:
        assert diagnosis_events(database, resumed_run) == diagnosis_events(database, straight_run)


def test_a_fork_is_judged_with_its_inherited_steps(database, queue_run, train_by_log):
    parent = queue_run()
    train_by_log(parent, healthy())
    fork = queue_run(parent_run=parent, fork_step=65)
    train_by_log(fork, COLLAPSE, begin=65)
    assert verdict(database, fork)[0] == "collapsed"
    assert "healthy" not in [line.message.split(":")[0] for line in diagnosis_events(database, fork)]


def test_a_failing_detector_stops_nothing_and_is_logged(
    database, queue_run, train_by_log, monkeypatch, caplog
):
    def fail(_log):
        raise ZeroDivisionError

    monkeypatch.setattr(online, "diagnose", fail)
    run_id = queue_run({"type": "diagnosis"})
    with caplog.at_level(logging.ERROR):
        assert train_by_log(run_id, COLLAPSE) is None
    assert verdict(database, run_id)[0] is None
    assert "the run cannot be diagnosed at step 10" in caplog.text


def test_the_newest_checkpoint_before_the_onset_survives_retention(database, queue_run, train_by_log):
    run_id = queue_run()
    train_by_log(run_id, COLLAPSE, saves=range(5, 121, 5))
    (step, (kind, onset)) = next(item for item in kept_checkpoints(database, run_id).items() if item[1][0])
    assert (step, kind) == (70, "verdict")
    assert onset == verdict(database, run_id)[2]
    assert set(kept_checkpoints(database, run_id)) == {70, 115, 120}


def test_at_most_one_checkpoint_is_kept_for_each_kind(database, queue_run):
    run_id = queue_run()
    with database.sessions.begin() as session:
        for step in range(10, 100, 10):
            row = {"path": f"s{step}", "sha256": "", "bytes_total": 1, "manifest": {}}
            add_checkpoint(session, {"run_id": run_id, "step": step, "attempt": 1, **row})
        for healthy_step in (35, 5, 62, 48):
            for kind in ("warning", "verdict", "warning"):
                keep_before(session, run_id, kind, healthy_step=healthy_step, sick_step=healthy_step + 4)
    marks = {step: mark for step, mark in kept_checkpoints(database, run_id).items() if mark[0]}
    assert marks == {40: ("verdict", 52)}
    with database.sessions.begin() as session:
        keep_before(session, run_id, "warning", healthy_step=25, sick_step=30)
        assert forget_old_checkpoints(session, run_id, keep=1) == {"s20", "s40", "s90"}


def rule(**fields):
    return {"type": "diagnosis"} | fields


@pytest.mark.parametrize(
    ("log", "fields", "status"),
    [
        (COLLAPSE, {}, "paused"),
        (COLLAPSE, {"action": "stop"}, "stopped"),
        (COLLAPSE, {"severity": "declining"}, "paused"),
        (COLLAPSE, {"causes": ["entropy_explosion"]}, "paused"),
        (COLLAPSE, {"causes": ["dead_run"]}, None),
        (COLLAPSE, {"severity": "warning", "causes": ["dead_run"]}, None),
        (WARNED_LOG, {}, None),
        (WARNED_LOG, {"severity": "declining"}, None),
        (WARNED_LOG, {"severity": "warning"}, "paused"),
        (WARNED_LOG, {"severity": "warning", "causes": ["entropy_explosion"]}, "paused"),
        (WARNED_LOG, {"severity": "warning", "causes": ["critic"]}, None),
    ],
)
def test_a_rule_ends_a_run_by_severity_and_cause_and_gives_the_reason(
    database, queue_run, train_by_log, log, fields, status
):
    run_id = queue_run(rule(**fields))
    outcome = train_by_log(run_id, log)
    assert (outcome and outcome.status) == status
    if outcome:
        assert outcome.reason.startswith("stop rule diagnosis: ")
        assert "Entropy exploded, between steps " in outcome.reason
        with database.sessions() as session:
            events = select(Event.message).where(Event.run_id == run_id, Event.kind == "lifecycle")
            assert any(outcome.reason in message for message in session.scalars(events))


def test_a_run_paused_by_a_rule_continues_when_resumed(database, queue_run, train_by_log):
    run_id = queue_run(rule())
    train_by_log(run_id, COLLAPSE)
    step = verdict(database, run_id)[-1]
    with database.sessions.begin() as session:
        lifecycle.resume_run(session, run_id)
    assert train_by_log(run_id, COLLAPSE, begin=step) is None
    assert verdict(database, run_id)[-1] == 120


def test_a_process_that_dies_between_verdict_and_checkpoint_loses_nothing(database, queue_run, train_by_log):
    undisturbed_run, run_id = queue_run(rule()), queue_run(rule())
    expected = train_by_log(undisturbed_run, COLLAPSE)
    step = verdict(database, undisturbed_run)[-1]
    train_by_log(run_id, COLLAPSE, dies=True)
    assert train_by_log(run_id, COLLAPSE, begin=step - 5) == expected
