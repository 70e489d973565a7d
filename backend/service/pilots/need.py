"""Compute the number of pilot workers to start, from the queued runs and the existing pilots."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.runs.lifecycle import claimable_condition
from backend.runs.workers.devices import CPU, MAX_CPU_RANKS
from backend.runs.workers.nodes import complete_groups, count_usable_devices
from backend.runs.workers.store import live_slots
from backend.storage.models import Run, Worker


class Pilots(NamedTuple):
    """Numbers of pilots on the cluster."""

    waiting: int
    """Number of submitted pilots that have not started."""
    running: int


class Need(NamedTuple):
    """The result of one poll of the queue."""

    runs: int
    """Number of queued runs that fit on a pilot."""
    free_slots: int
    """Number of slots, of any workers, without a run."""
    pilots: int
    """Number of pilots to start now."""


def compute_need(
    session: Session, pilots: Pilots, *, max_pilots: int, devices: int = 1, nodes: int = 1
) -> Need:
    """Return how many pilots with `devices` devices to add to the existing ones, up to a total of
    `max_pilots`.

    A pilot trains one run at a time. A pilot that has just started counts as waiting until its slot is
    registered. Runs that need more devices than a pilot has, or another number of `nodes`, are not counted,
    because a pilot could never train them.
    """
    fit_conditions = (
        claimable_condition(),
        Run.requested_action == "",
        Run.devices <= devices,
        Run.nodes == nodes,
    )
    runs = session.scalars(select(Run.devices).where(*fit_conditions)).all()
    free_slots = [slot for slot in live_slots(session) if slot.run_id is None and slot.nodes == nodes]
    runs_without_slot = (
        count_runs_without_slot(runs, free_slots)
        if nodes == 1
        else count_runs_without_group(session, runs, free_slots, nodes)
    )
    missing_pilots = min(runs_without_slot - pilots.waiting, max_pilots - pilots.waiting - pilots.running)
    return Need(len(runs), len(free_slots), max(0, missing_pilots))


def count_runs_without_group(
    session: Session, runs: Sequence[int], free_workers: Sequence[Worker], nodes: int
) -> int:
    """Return the number of runs for which no complete group of this number of nodes is free."""
    idle_workers = {slot.id.rpartition("-")[0] for slot in free_workers}
    groups = [seats for seats in complete_groups(session) if len(seats) == nodes]
    free_device_counts = sorted(
        count_usable_devices(seats) for seats in groups if seats[0].worker_id in idle_workers
    )
    unplaced_count = 0
    for devices in sorted(runs, reverse=True):
        if free_device_counts and free_device_counts[-1] >= devices:
            free_device_counts.pop()
        else:
            unplaced_count += 1
    return unplaced_count


def count_runs_without_slot(runs: Sequence[int], free_workers: Sequence[Worker]) -> int:
    """Return the number of runs, given by their numbers of devices, for which no worker has free slots."""
    slots = Counter((slot.host, slot.pid, slot.device == CPU) for slot in free_workers)
    unplaced_count = 0
    for devices in sorted(runs, reverse=True):
        slots_by_pool = {
            pool: 1 if pool[2] else devices for pool in slots if not pool[2] or devices <= MAX_CPU_RANKS
        }
        fitting_pools = [pool for pool in slots_by_pool if slots[pool] >= slots_by_pool[pool]]
        if fitting_pools:
            worker = max(fitting_pools, key=lambda pool: slots[pool])
            slots[worker] -= slots_by_pool[worker]
        else:
            unplaced_count += 1
    return unplaced_count
