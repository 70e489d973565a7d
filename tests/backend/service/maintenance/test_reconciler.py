"""Tests of the reconciler, which maintains the queue."""

import time
from contextlib import suppress

import pytest
from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import OperationalError

from backend.metrics import blocks
from backend.runs import lifecycle
from backend.runs.leases import LostRuns, grace_seconds
from backend.service.maintenance import chores, reconciler
from backend.service.maintenance.reconciler import Reconciler, take_lease
from backend.storage.engine import db_now
from backend.storage.models import MetricBlock, Run, Singleton, Worker
from tests.factories import make_attempt, make_run, write_metric
from tests.waiting import wait_for


@pytest.fixture
def rings(monkeypatch):
    """The number of doorbell messages so far."""
    rung_settings: list[object] = []

    def ring(settings):
        rung_settings.append(settings)
        return True

    monkeypatch.setattr(reconciler, "ring", ring)
    return rung_settings


def add_slot(session, number, run_id=None):
    session.add(Worker(id=f"w-{number}", host="h", pid=1, slot=number, device="cpu", run_id=run_id, stats={}))


def test_the_doorbell_rings_once_for_each_queued_run_with_a_free_slot(sessions, settings, rings):
    with sessions.begin() as session:
        for number in range(3):
            make_run(session)
            add_slot(session, number, run_id="other" if number == 2 else None)
    assert Reconciler(settings, sessions).run_once() == 2
    assert len(rings) == 2


def test_a_run_whose_worker_was_lost_is_queued_again(sessions, settings, rings):
    with sessions.begin() as session:
        run = make_run(session)
        lifecycle.claim_run(session, "w", "h")
        session.execute(update(Run).values(lease_until=db_now() - 1))
    now, reconciler = [0.0], Reconciler(settings, sessions)
    reconciler._lost = LostRuns(settings.lease_seconds, look_seconds=3600, clock=lambda: now[0])
    reconciler.run_once()
    with sessions() as session:
        assert session.scalar(select(Run.status).where(Run.id == run.id)) == "running"
    now[0] += grace_seconds(settings.lease_seconds)
    reconciler.run_once()
    with sessions() as session:
        assert session.scalar(select(Run.status).where(Run.id == run.id)) == "queued"


def test_an_unexpected_error_does_not_end_the_thread(sessions, settings, rings, monkeypatch, caplog):
    """Maintenance continues with the next look."""
    monkeypatch.setattr(reconciler, "POLL_SECONDS", 0.01)
    faults = iter([AttributeError("'str' object has no attribute 'get'"), KeyError("step")])

    def looked_for(session):
        if (fault := next(faults, None)) is not None:
            raise fault
        return []

    monkeypatch.setattr(chores, "due_trials", looked_for)
    monkeypatch.setattr(chores, "TRIAL_PAUSE_SECONDS", 0.0)
    with sessions.begin() as session:
        make_run(session)
        add_slot(session, 0)
    started_reconciler = Reconciler(settings, sessions)
    started_reconciler.start()
    wait_for(lambda: rings)
    started_reconciler.stop()
    assert caplog.text.count("the reconciler failed") == 2


def test_one_process_at_a_time_holds_a_lease_until_it_ends(sessions):
    with sessions.begin() as session:
        assert take_lease(session, "job", "a", seconds=100)
        assert take_lease(session, "job", "a", seconds=-1)
        assert take_lease(session, "job", "b", seconds=100)
        assert not take_lease(session, "job", "a", seconds=100)


def test_points_are_sealed_in_batches_and_nothing_is_written_once_all_are(sessions, settings, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_STEPS", 10)
    monkeypatch.setattr(chores, "SEAL_SECONDS", 0.0)
    monkeypatch.setattr(chores, "SEAL_PAUSE_SECONDS", 0.0)
    with sessions.begin() as session:
        run = make_run(session, status="finished", attempt=1, last_step=25)
        make_attempt(session, run, 1, from_step=-1)
        write_metric(session, run, "reward/mean", dict.fromkeys(range(1, 26), 1.0))

    def count_packed():
        with sessions() as session:
            return session.scalar(select(func.count()).select_from(MetricBlock))

    new_reconciler = Reconciler(settings, sessions)
    counts = []
    for _ in range(4):
        new_reconciler.run_once()
        counts.append(count_packed())
    assert counts == [1, 2, 3, 3]
    with sessions.begin() as session:
        session.execute(delete(Singleton))
    new_reconciler.run_once()
    with sessions() as session:
        assert session.scalar(select(Singleton.owner)) is None


def test_a_trial_that_keeps_failing_does_not_block_others(sessions, settings, rings, monkeypatch):
    """The error may be of any kind: the database may refuse a single trial."""
    pending, tried_trials = ["a", "b", "c"], []

    def settle(_sessions, _settings, trial):
        tried_trials.append(trial)
        if trial == "a":
            raise OperationalError("UPDATE", {}, Exception("database is locked"))
        pending.remove(trial)

    monkeypatch.setattr(chores, "due_trials", lambda _session: list(pending))
    monkeypatch.setattr(chores, "settle_trial", settle)
    monkeypatch.setattr(chores, "TRIAL_PAUSE_SECONDS", 0.0)
    new_reconciler = Reconciler(settings, sessions)
    for _ in range(8):
        with suppress(OperationalError):
            new_reconciler.run_once()
    assert pending == ["a"]
    assert tried_trials[:3] == ["a", "b", "c"]


def test_a_job_pauses_after_its_end_however_long_it_takes(sessions, monkeypatch):
    now, search_times, has_more = [100.0], [], iter([True, True, True, False] * 2)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def find(_session):
        search_times.append(now[0])
        return work_ten_seconds

    def work_ten_seconds():
        now[0] += 10.0
        return next(has_more)

    chore = chores.Chore(find, pause=5.0)
    with sessions() as session:
        while now[0] < 150:
            now[0] += 1.0
            chore.poll(session)
            chore.go_on()
    # Four pieces of 10 s in as many passes of 1 s, then 5 s of pause.
    assert search_times == [101.0, 150.0]
