"""Tests of the detection of runs whose worker is lost."""

import pytest
from sqlalchemy import update

from backend.runs import leases, lifecycle
from backend.runs.leases import LostRuns, grace_seconds
from backend.storage.engine import db_now, open_engine, open_sessions
from backend.storage.models import Run
from tests.factories import make_run


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def session(sqlite_url):
    engine = open_engine(sqlite_url)
    with open_sessions(engine)() as session:
        yield session
    engine.dispose()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def run_id(session):
    run = make_run(session)
    lifecycle.claim_run(session, "w", "h")
    session.execute(update(Run).values(lease_until=db_now() - 1))
    return run.id


def watch_for(watch, session, clock, seconds):
    """Look once a second and return the watch's final answer."""
    for _ in range(seconds):
        clock.now += 1
        expired = watch.find_expired(session)
    return [lease.run_id for lease in expired]


def watch_leases(clock):
    return LostRuns(60, look_seconds=1, clock=clock)


def test_the_grace_of_a_lease_of_a_minute_is_20_seconds_and_shrinks_with_the_lease():
    assert (grace_seconds(60), grace_seconds(6), grace_seconds(3600)) == (20, 2, 905)


def test_a_lease_that_stays_expired_for_the_grace_period_is_lost(session, clock, run_id):
    watch = watch_leases(clock)
    assert watch_for(watch, session, clock, 20) == []
    assert watch_for(watch, session, clock, 1) == [run_id]


def test_a_renewal_within_the_grace_period_keeps_the_run(session, clock, run_id):
    watch = watch_leases(clock)
    watch_for(watch, session, clock, 15)
    leases.renew_lease(session, run_id, 1)
    assert watch_for(watch, session, clock, 20) == []
    session.execute(update(Run).values(lease_until=db_now() - 1))
    assert watch_for(watch, session, clock, 20) == []


def test_time_without_a_look_or_a_response_does_not_count(session, clock, run_id):
    watch = watch_leases(clock)
    watch_for(watch, session, clock, 15)
    clock.now += 600
    assert watch_for(watch, session, clock, 15) == []
    watch.forget()
    assert watch_for(watch, session, clock, 20) == []
    assert watch_for(watch, session, clock, 1) == [run_id]


def test_a_lease_renewed_after_the_look_is_neither_claimed_nor_requeued(session, clock, run_id):
    watch = watch_leases(clock)
    watch_for(watch, session, clock, 21)
    lost_leases = watch.find_expired(session)
    leases.renew_lease(session, run_id, 1)
    assert lifecycle.take_back_lost(session, lost_leases) == []
    assert lifecycle.claim_run(session, "other", "h", lost_leases=lost_leases) is None
