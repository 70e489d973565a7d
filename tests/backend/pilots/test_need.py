"""Pilots that are wanted: what waits, less what is there."""

import pytest

from backend.pilots.need import Pilots, need_of
from backend.workers.devices import Slot
from backend.workers.store import register_slot, report_slot
from tests.factories import make_run


@pytest.mark.parametrize(
    ("queued", "idle", "busy", "there", "most", "wanted"),
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
def test_pilots_cover_what_waits(session, queued, idle, busy, there, most, wanted):
    for _ in range(queued):
        make_run(session, status="queued")
    make_run(session, status="running")
    make_run(session, status="queued", wish="stop")
    for number in range(idle + busy):
        register_slot(session, f"w-{number}", Slot(number, "cpu", "CPU", 1), host="h", pid=1)
        report_slot(session, f"w-{number}", "idle", "a" * 26 if number >= idle else None, {})
    found = need_of(session, Pilots(*there), most=most)
    assert (found.runs, found.free_slots, found.pilots) == (queued, idle, wanted)
