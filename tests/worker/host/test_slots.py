"""The slots of one worker: what they claim and what becomes of it."""

import pytest
from sqlalchemy import event, select
from sqlalchemy.exc import OperationalError

from backend.db.engine import open_engine, open_sessions
from backend.db.models import Run
from backend.errors import Fenced
from backend.runs import leases, lifecycle
from backend.workers.devices import Slot
from tests.factories import make_run
from worker.host.slots import SlotPool


@pytest.fixture
def engine(sqlite_url):
    engine = open_engine(sqlite_url)
    yield engine
    engine.dispose()


@pytest.fixture
def sessions(engine):
    return open_sessions(engine)


@pytest.fixture
def pool(settings, sessions):
    return SlotPool(settings, sessions, [Slot(0, "cpu", "CPU", 1)])


def test_a_claim_whose_commit_fails_is_no_claim(pool, sessions, engine):
    with sessions.begin() as session:
        make_run(session)

    def refuse(connection):
        raise OperationalError("COMMIT", {}, Exception("disk I/O error"))

    event.listen(engine, "commit", refuse)
    assert pool._claim(pool._worker_slots[0]) is None
    event.remove(engine, "commit", refuse)
    with sessions() as session:
        assert session.scalar(select(Run.status)) == "queued"
    assert pool._claim(pool._worker_slots[0]).attempt == 1


def test_an_attempt_of_the_same_number_belongs_to_one_worker_only(sessions):
    with sessions.begin() as session:
        run = make_run(session)
        claim = lifecycle.claim_run(session, "first", "host")
    with sessions.begin() as session:
        leases.renew_lease(session, run.id, claim.attempt, owner="first")
        with pytest.raises(Fenced):
            leases.renew_lease(session, run.id, claim.attempt, owner="second")
