"""Tests of runs on several devices: what a worker claims, in which order, and the cost of attempts."""

from backend.runs import lifecycle
from backend.runs.cost import sum_cost
from backend.storage.models import Attempt, Run
from tests.factories import make_run


def claim(database, **knobs):
    with database.sessions.begin() as session:
        return lifecycle.claim_run(session, "w", "h", **knobs)


def queue_runs(database, *widths):
    """Queue runs in this order."""
    with database.sessions.begin() as session:
        return [
            make_run(session, devices=width, queued_at=queued_at).id for queued_at, width in enumerate(widths)
        ]


def test_a_worker_skips_runs_that_it_can_never_hold(database):
    wide_run, narrow_run = queue_runs(database, 4, 1)
    assert claim(database, room=2, max_devices=2).run_id == narrow_run
    assert claim(database, room=2, max_devices=2) is None
    claimed_run = claim(database, room=4, max_devices=4)
    assert (claimed_run.run_id, claimed_run.devices) == (wide_run, 4)


def test_narrow_runs_leave_slots_to_a_wide_run_queued_first(database):
    wide_run, narrow_run = queue_runs(database, 2, 1)
    assert (
        claim(database, room=1, max_devices=2) is None
    )  # one of two is busy, so the other one waits for the wide run
    assert claim(database, room=2, max_devices=2).run_id == wide_run
    assert claim(database, room=1, max_devices=2).run_id == narrow_run


def test_a_run_of_higher_priority_precedes_a_wide_one(database):
    queue_runs(database, 2)
    with database.sessions.begin() as session:
        urgent = make_run(session, priority=1).id
    assert claim(database, room=1, max_devices=2).run_id == urgent


def test_an_attempt_records_its_devices_and_costs_as_much_as_its_slots(database):
    (run_id,) = queue_runs(database, 2)
    claim(database, room=2, max_devices=2)
    with database.sessions() as session:
        assert session.get_one(Attempt, (run_id, 1)).devices == 2
        assert session.get_one(Run, run_id).status == "running"
    gpus = Attempt(started_at=0, ended_at=3600, device="cuda:0", devices=2, slot_price=3.0, currency="EUR")
    assert sum_cost([gpus], now=0) == {
        "slot_hours": 2.0,
        "gpu_hours": 2.0,
        "money": {"EUR": 6.0},
        "judges": {},
    }
