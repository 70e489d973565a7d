"""Tests of the limits that end pilot workers, by hand and as processes."""

import time

from worker.host.pilot import Pilot, PilotLimits


def test_without_limits_nothing_ends_a_worker():
    pilot = Pilot(PilotLimits())
    assert pilot.may_claim()
    assert pilot.reason_to_end(is_busy=False) == ""


def test_after_its_runs_a_pilot_claims_no_more_and_ends_with_the_last():
    pilot = Pilot(PilotLimits(runs=2))
    pilot.note_claim()
    assert pilot.may_claim()
    pilot.note_claim()
    assert not pilot.may_claim()
    assert pilot.reason_to_end(is_busy=True) == ""
    assert "all 2 runs" in pilot.reason_to_end(is_busy=False)


def test_idle_time_begins_when_the_last_run_ends(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pilot = Pilot(PilotLimits(idle_seconds=60))
    now[0] += 61
    assert pilot.reason_to_end(is_busy=True) == ""
    assert pilot.reason_to_end(is_busy=False) == ""
    now[0] += 61
    assert "no run came" in pilot.reason_to_end(is_busy=False)


def test_a_busy_pilot_ends_at_its_deadline():
    pilot = Pilot(PilotLimits(end_time=time.time() - 1))
    assert not pilot.may_claim()
    assert "WORKER_UNTIL" in pilot.reason_to_end(is_busy=True)
    assert Pilot(PilotLimits(end_time=time.time() + 100)).reason_to_end(is_busy=True) == ""
