"""Tests of the slots of one worker and the runs that they claim."""

import pytest
from sqlalchemy import event, select
from sqlalchemy.exc import OperationalError

from backend.base.errors import Fenced
from backend.runs import leases, lifecycle
from backend.runs.workers.devices import Slot
from backend.storage.engine import open_engine, open_sessions
from backend.storage.models import Run
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


def test_a_claim_whose_commit_fails_is_not_a_claim(pool, sessions, engine):
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


def test_an_attempt_of_one_number_belongs_to_one_worker(sessions):
    with sessions.begin() as session:
        run = make_run(session)
        claim = lifecycle.claim_run(session, "first", "host")
    with sessions.begin() as session:
        leases.renew_lease(session, run.id, claim.attempt, owner="first")
        with pytest.raises(Fenced):
            leases.renew_lease(session, run.id, claim.attempt, owner="second")


@pytest.fixture
def two_gpus(settings, sessions):
    gpus = [Slot(number, "cuda:0", "GPU", 1, f"GPU-{number}") for number in range(2)]
    return SlotPool(settings, sessions, gpus)


def test_a_wide_run_trains_first_on_its_slots_gpu_and_frees_both(two_gpus, sessions, monkeypatch):
    with sessions.begin() as session:
        make_run(session, devices=2, config={"resources": {"devices": 2}})
    first, second = two_gpus._worker_slots
    given_gpus = []
    monkeypatch.setattr(second.supervisor, "supervise", lambda _, gpus: given_gpus.extend(gpus))
    two_gpus._train(second, two_gpus._claim(second))
    assert (given_gpus, first.run_id, second.run_id) == (["GPU-1", "GPU-0"], None, None)


def test_gpus_not_used_by_a_wide_run_serve_others(settings, sessions, monkeypatch):
    """The second slot of the wide run has no trainer and must not look for work."""
    gpus = [Slot(number, "cuda:0", "GPU", 1, f"GPU-{number}") for number in range(3)]
    pool = SlotPool(settings, sessions, gpus)
    with sessions.begin() as session:
        make_run(session, queued_at=1, devices=2, config={"resources": {"devices": 2}})
        narrow_run = make_run(session, queued_at=2)
    first, _, third = pool._worker_slots
    assert first.busy.acquire(blocking=False)
    assert pool._claim(first).devices == 2
    trained_runs = []
    monkeypatch.setattr(
        third.supervisor, "supervise", lambda claim, gpus: trained_runs.append((claim.run_id, gpus))
    )
    pool.serve()
    assert trained_runs == [(narrow_run.id, ["GPU-2"])]


def test_a_wide_run_waits_for_both_gpus_and_reserves_the_free_one(two_gpus, sessions):
    with sessions.begin() as session:
        make_run(session, queued_at=1)
        make_run(session, queued_at=2, devices=2, config={"resources": {"devices": 2}})
        make_run(session, queued_at=3)
    first, second = two_gpus._worker_slots
    assert two_gpus._claim(first).devices == 1
    assert two_gpus._claim(second) is None
    first.run_id = None
    assert two_gpus._claim(second).devices == 2
