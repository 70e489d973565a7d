"""Number of pilot workers to start: what waits, less what is there or on its way."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.runs.lifecycle import claimable_condition
from backend.runs.workers.devices import CPU, CPU_RANKS
from backend.runs.workers.nodes import complete_groups, max_devices
from backend.runs.workers.store import live_slots
from backend.storage.models import Run, Worker


class Pilots(NamedTuple):
    """Pilots as the cluster knows them."""

    waiting: int
    """Submitted, and not started yet."""
    running: int


class Need(NamedTuple):
    """Findings of one poll of the queue."""

    runs: int
    """Runs that wait for a worker and fit on a pilot."""
    free_slots: int
    """Slots of workers of any kind that have no run."""
    pilots: int
    """Pilots to start now."""


def compute_need(session: Session, pilots: Pilots, *, most: int, devices: int = 1, nodes: int = 1) -> Need:
    """Pilots of so many devices to add to the existing `pilots`; at most `most` at a time.

    A pilot takes one run at a time. One that has just started counts as on its way until its slot is seen.
    Runs that need more devices than a pilot has, or another number of `nodes`, are left out: it could never
    take them.
    """
    fits = (claimable_condition(), Run.wish == "", Run.devices <= devices, Run.nodes == nodes)
    runs = session.scalars(select(Run.devices).where(*fits)).all()
    free = [slot for slot in live_slots(session) if slot.run_id is None and slot.nodes == nodes]
    left = (
        count_runs_without_slot(runs, free)
        if nodes == 1
        else count_runs_without_group(session, runs, free, nodes)
    )
    needed = min(left - pilots.waiting, most - pilots.waiting - pilots.running)
    return Need(len(runs), len(free), max(0, needed))


def count_runs_without_group(
    session: Session, runs: Sequence[int], free: Sequence[Worker], nodes: int
) -> int:
    """Number of the runs for which no complete group of so many nodes is free."""
    idle = {slot.id.rpartition("-")[0] for slot in free}
    groups = [seats for seats in complete_groups(session) if len(seats) == nodes]
    room = sorted(max_devices(seats) for seats in groups if seats[0].worker_id in idle)
    left = 0
    for devices in sorted(runs, reverse=True):
        if room and room[-1] >= devices:
            room.pop()
        else:
            left += 1
    return left


def count_runs_without_slot(runs: Sequence[int], free: Sequence[Worker]) -> int:
    """Number of the runs, given by the devices that they need, that no worker has free slots for."""
    slots = Counter((slot.host, slot.pid, slot.device == CPU) for slot in free)
    left = 0
    for devices in sorted(runs, reverse=True):
        held = {pool: 1 if pool[2] else devices for pool in slots if not pool[2] or devices <= CPU_RANKS}
        fitting = [pool for pool in held if slots[pool] >= held[pool]]
        if fitting:
            worker = max(fitting, key=lambda pool: slots[pool])
            slots[worker] -= held[worker]
        else:
            left += 1
    return left
