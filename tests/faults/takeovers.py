"""A worker dies and another has a free place: how soon its trainers are gone and its run goes on (row 3)."""

import time
from pathlib import Path
from statistics import median

from sqlalchemy import select

from backend.storage.engine import reading
from backend.storage.models import Attempt
from tests.faults.campaign import Round, configs, references, verdict_of
from tests.faults.chaos import Chaos
from tests.faults.plant import LEASE_SECONDS, Kind, Plant, Trainer
from tests.faults.processes import is_alive
from tests.waiting import wait_for

GONE_SECONDS = 1.0
TAKEN_SECONDS = LEASE_SECONDS + 2.0
"""What a machine that is not overloaded keeps to."""


def take_over(kind: Kind, warm: Path | None, *, times: int) -> Round:
    """Kill the worker of one run again and again."""
    started = time.monotonic()
    gone: list[float] = []
    deaths: list[tuple[Trainer, float]] = []
    with Plant(kind, warm, slots=1) as plant:
        (config,) = configs(1, steps=18)
        (expected,) = references(plant, [config])
        chaos, run_ids = Chaos(plant, 0), plant.queue([config])
        while len(deaths) < times:
            wait_for(lambda: len(plant.alive()) == plant.workers, "two workers")
            plant.wait_for_workers()
            if not plant.unended(run_ids):
                run_ids += plant.queue([config])
            (victim,) = wait_for(plant.trainers, "a trainer")[:1]
            chaos.look(run_ids)
            worker = next(process for process in plant.alive() if process.pid == victim.worker_pid)
            worker.kill()
            died = time.time()
            wait_for(lambda pid=victim.pid: not is_alive(pid), "a trainer follows its worker")  # type: ignore[misc]
            gone.append(time.time() - died)
            worker.wait()
            wait_for(lambda v=victim: _goes_on(plant, v), "another takes over")  # type: ignore[misc]
            if plant.read(victim.run_id).attempt > victim.attempt:
                deaths.append((victim, died))
            plant.start_worker()
        plant.wait_until_ended(run_ids)
        chaos.counts["worker_killed"] = times
        taken = [_next_start(plant, victim) - died for victim, died in deaths]
        verdict = verdict_of(plant, chaos, dict.fromkeys(run_ids, expected))
    measured = {
        "gone_seconds": [round(median(gone), 3), round(max(gone), 3)],
        "taken_seconds": [round(median(taken), 2), round(max(taken), 2)],
    }
    return Round(kind, 0, chaos.counts, verdict, time.monotonic() - started, measured)


def _goes_on(plant: Plant, victim: Trainer) -> bool:
    run = plant.read(victim.run_id)
    return run.attempt > victim.attempt or run.status == "finished"


def _next_start(plant: Plant, victim: Trainer) -> float:
    query = select(Attempt.started_at).where(
        Attempt.run_id == victim.run_id, Attempt.number == victim.attempt + 1
    )
    with reading(plant.sessions) as session:
        return session.scalars(query).one()
