"""Tests that a change of the database's clock is reported once and blocks nothing."""

import re
import time

import pytest
from sqlalchemy import select, update

from backend.runs import lifecycle
from backend.runs.workers.store import live_slots
from backend.service.maintenance import clock_jumps
from backend.service.maintenance import reconciler as module
from backend.service.maintenance.clock_jumps import ClockWatch
from backend.service.maintenance.reconciler import Reconciler
from backend.storage.engine import db_now
from backend.storage.models import Event, Run, Singleton, Worker
from tests.factories import make_run

HOUR = 3600.0


class Elapsed:
    """The time since the machine started, which the test moves."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now + time.monotonic()


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A tolerance for a busy machine that may pause between two looks."""
    monkeypatch.setattr(clock_jumps, "JUMP_SECONDS", 600.0)


@pytest.fixture
def reconciler(database, settings, monkeypatch):
    monkeypatch.setattr(module, "ring", lambda _settings: True)
    return Reconciler(settings, database.sessions)


def event_texts(sessions):
    with sessions() as session:
        return session.execute(select(Event.run_id, Event.message).where(Event.kind == "clock")).all()


def lease_seconds(sessions):
    """Return the seconds until the only lease expires."""
    with sessions() as session:
        return session.scalar(select(Run.lease_until - db_now()))


@pytest.mark.parametrize(("passed", "jump"), [(-HOUR, HOUR), (HOUR, -HOUR), (300.0, 0.0)])
def test_a_jump_is_the_clock_change_beyond_the_elapsed_time(database, passed, jump):
    elapsed = Elapsed()
    watch = ClockWatch(read_elapsed=elapsed)
    with database.sessions() as session:
        watch.read_clock(session)
        elapsed.now += passed  # the database's clock includes the real run time of this process
        assert watch.read_clock(session).jump == pytest.approx(jump, rel=0.1)


def test_a_jump_is_reported_once_to_every_running_run(database, reconciler):
    elapsed = Elapsed()
    reconciler._clock = ClockWatch(read_elapsed=elapsed)
    with database.sessions.begin() as session:
        run = make_run(session, status="running", attempt=1, lease_until=db_now() + 60)
        make_run(session, status="finished")
    reconciler.run_once()
    elapsed.now -= 2 * HOUR
    reconciler.run_once()
    reconciler.run_once()
    ((event_text, line),) = event_texts(database.sessions)
    assert event_text == run.id
    assert re.fullmatch(
        r"the database's clock jumped ahead by 7,[12]\d\d s: nothing is lost and runs continue, "
        "but times before and after the jump cannot be compared",
        line,
    )


def test_nothing_waits_for_a_clock_that_was_set_back(database, settings, reconciler):
    """A machine that starts with a clock an hour behind finds such a record."""
    with database.sessions.begin() as session:
        lost_run = make_run(session, status="running", attempt=1, worker_id="w", lease_until=db_now() + HOUR)
        late_run = make_run(session, run_after=db_now() + HOUR, queued_at=db_now() + HOUR)
        early_run = make_run(session, queued_at=db_now() + HOUR - 60)
        session.add(Worker(id="w", host="h", pid=1, slot=0, device="cpu", seen_at=db_now() + HOUR, stats={}))
        session.add(Singleton(name=module.NAME, owner="somebody", until=db_now() + HOUR))
        session.execute(update(Run).values(changed_at=db_now() + HOUR))
    reconciler.run_once()
    ((event_text, line),) = event_texts(database.sessions)
    assert event_text == lost_run.id
    assert re.match(r"the database's clock went back by 3,[56]\d\d s", line)
    with database.sessions.begin() as session:
        ids_ahead = select(Run.id).where(Run.changed_at > db_now())
        assert session.scalars(ids_ahead).all() == []
        remaining_lease = select(Run.lease_until - db_now()).where(Run.id == lost_run.id)
        assert session.scalar(remaining_lease) <= settings.lease_seconds
        assert [slot.id for slot in live_slots(session)] == ["w"]  # for half a minute
        assert lifecycle.claim_run(session, "v", "h").run_id == early_run.id
        assert lifecycle.claim_run(session, "v", "h").run_id == late_run.id


def test_an_old_lease_is_repaired_even_if_its_trainer_wrote_once_more(database, settings, reconciler):
    """A trainer that outlives its worker by a step leaves a current row and a lease that nobody renews."""
    elapsed = Elapsed()
    reconciler._clock = ClockWatch(read_elapsed=elapsed)
    with database.sessions.begin() as session:
        make_run(session, status="running", attempt=1, lease_until=db_now() + HOUR)
    reconciler.run_once()
    elapsed.now += HOUR
    reconciler.run_once()
    assert lease_seconds(database.sessions) <= settings.lease_seconds


@pytest.mark.parametrize("seen", [HOUR, None])
def test_a_service_that_was_down_detects_the_effects_of_a_clock_change(database, settings, reconciler, seen):
    """Its record is current, but the worker's heartbeat or an overlong lease reveals the change."""
    with database.sessions.begin() as session:
        make_run(session, status="running", attempt=1, lease_until=db_now() + (HOUR if seen else 2 * HOUR))
        if seen:
            worker = {"host": "h", "pid": 1, "slot": 0, "device": "cpu", "stats": {}}
            session.add(Worker(id="w", seen_at=db_now() + seen, **worker))
    reconciler.run_once()
    assert lease_seconds(database.sessions) <= settings.lease_seconds
