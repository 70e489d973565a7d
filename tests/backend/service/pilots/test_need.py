"""Tests of the number of pilots to start: queued runs minus available capacity."""

import pytest

from backend.runs.workers.devices import Slot
from backend.runs.workers.nodes import take_seat
from backend.runs.workers.store import live_slots, register_slot, report_slot
from backend.service.pilots.need import Pilots, compute_need, count_runs_without_slot
from tests.factories import make_run


@pytest.mark.parametrize(
    ("queued", "idle", "busy", "pilots", "limit", "expected"),
    [
        (0, 0, 0, (0, 0), 8, 0),
        (3, 0, 0, (0, 0), 8, 3),
        (3, 1, 0, (0, 0), 8, 2),
        (3, 0, 2, (0, 2), 8, 3),
        (3, 0, 0, (2, 0), 8, 1),
        (3, 0, 0, (5, 0), 8, 0),
        (20, 0, 3, (2, 3), 8, 3),
        (20, 0, 0, (0, 9), 8, 0),
    ],
)
def test_pilots_cover_queued_runs(session, queued, idle, busy, pilots, limit, expected):
    for _ in range(queued):
        make_run(session, status="queued")
    make_run(session, status="running")
    make_run(session, status="queued", requested_action="stop")
    for number in range(idle + busy):
        register_slot(session, f"w-{number}", Slot(number, "cpu", "CPU", 1), host="h", pid=1)
        report_slot(session, f"w-{number}", "idle", "a" * 26 if number >= idle else None, {})
    need = compute_need(session, Pilots(*pilots), max_pilots=limit)
    assert (need.runs, need.free_slots, need.pilots) == (queued, idle, expected)


def test_a_run_over_several_gpus_waits_for_a_worker_that_has_them(session):
    """Free slots of narrower workers do not help."""
    make_run(session, status="queued", devices=4)
    for number in range(6):
        register_slot(session, f"w-{number}", Slot(0, "cuda:0", "GPU", 1), host="h", pid=number)
    assert compute_need(session, Pilots(0, 0), max_pilots=8, devices=4) == (1, 6, 1)
    for number in range(4):
        register_slot(session, f"v-{number}", Slot(number, "cuda:0", "GPU", 1), host="h", pid=9)
    assert compute_need(session, Pilots(0, 0), max_pilots=8, devices=4) == (1, 10, 0)


def test_no_pilot_starts_for_a_run_that_it_can_never_take(session):
    make_run(session, status="queued", devices=4)
    make_run(session, status="queued", devices=1)
    assert compute_need(session, Pilots(0, 0), max_pilots=8, devices=1) == (1, 0, 1)


def test_runs_that_free_slots_cannot_take_remain(session):
    """A worker with 3 GPUs takes one of two 2-GPU runs and one 1-GPU run, and CPU slots can be shared."""
    for number in range(3):
        register_slot(session, f"g-{number}", Slot(number, "cuda:0", "GPU", 1), host="h", pid=1)
    assert count_runs_without_slot([1, 2, 2], live_slots(session)) == 1
    register_slot(session, "c", Slot(0, "cpu", "CPU", 1), host="h", pid=2)
    assert count_runs_without_slot([1, 2, 2], live_slots(session)) == 0


def test_a_run_on_two_nodes_waits_for_pilots_of_two(session):
    """A complete and free group of nodes takes one run."""
    for _ in range(2):
        make_run(session, status="queued", nodes=2)
    assert compute_need(session, Pilots(0, 0), max_pilots=8).pilots == 0
    assert compute_need(session, Pilots(0, 0), max_pilots=8, nodes=2).pilots == 2
    for rank in (0, 1):
        register_slot(session, f"gpu{rank}-0", Slot(0, "cpu", "CPU", 1), host="h", pid=rank, nodes=2)
        node_facts = {"nodes": 2, "host": "h", "address": "10.0.0.1", "devices": 8, "traits": {}}
        take_seat(session, "g", rank, f"gpu{rank}", **node_facts)
    assert compute_need(session, Pilots(0, 1), max_pilots=8, nodes=2).pilots == 1
    report_slot(session, "gpu0-0", "busy", "a" * 26, {})
    assert compute_need(session, Pilots(0, 1), max_pilots=8, nodes=2).pilots == 2
