"""Death at every point that a trainer and a worker pass: discover the points, then kill at each."""

import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.faults.campaign import BASE_CONFIG, VARIANT_CONFIGS, Round, reach_verdict, references
from tests.faults.chaos import Chaos
from tests.faults.failpoints import Plan
from tests.faults.plant import FaultyInstallation, Kind
from tests.faults.processes import is_alive, send
from tests.waiting import wait_for

RUN_CONFIG = (
    BASE_CONFIG
    | VARIANT_CONFIGS[1]
    | {"seed": 1, "steps": 6, "checkpointing": {"every": 2, "keep": 1, "spaced": 0}}
)
"""Config of a run that saves, forgets and removes checkpoints within seconds."""

BATCH_COUNT = 12
"""Maximum number of times that runs are queued for points which no process has reached."""

MAX_KILLS = 100
"""Maximum number of killed trainers, so that supervisors reach the points of their reaction."""

Points = dict[str, list[str]]
"""The points by role, "trainer" and "worker", in order of their first visit."""


def discover(kind: Kind, warm: Path) -> Points:
    """Return the points of a trainer and a worker in two runs, a kill and a shutdown."""
    with tempfile.TemporaryDirectory() as directory:
        files = {role: Path(directory) / role for role in ("trainer", "worker")}
        Path(directory).chmod(0o711)
        with FaultyInstallation(
            kind,
            warm,
            workers=1,
            slots=1,
            lease_seconds=6,
            trainer_failpoint=("record", str(files["trainer"])),
            failpoint=("record", str(files["worker"])),
        ) as installation:
            references(installation, [RUN_CONFIG])
            (run_id,) = installation.queue([RUN_CONFIG])
            victims = wait_for(
                lambda: [
                    trainer
                    for trainer in installation.trainers()
                    if trainer.run_id == run_id and trainer.step > 2
                ],
                "a step",
            )
            send(victims[0].pid, signal.SIGKILL)
            installation.wait_until_ended([run_id])
            installation.crew[0].send_signal(signal.SIGTERM)
            installation.crew[0].wait()
        return {role: list(Counter(file.read_text().splitlines())) for role, file in files.items()}


def is_certain(point: str) -> bool:
    """Return True if every such life passes the point.

    Chance decides which files of a killed save remain to be removed, which events such as a slow disk a
    trainer reports, and which steps are written together."""
    return not any(name in point for name in ("remove_drafts", "_add_events", "_load_summary"))


def die_at(kind: Kind, warm: Path, role: str, points: Sequence[str]) -> tuple[Round, list[str]]:
    """Cause one death at each point, and return the judged round and the points that no process reached."""
    start_time = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        plan = Plan(Path(directory))
        plan.write(points)
        order = ("take", directory)
        with FaultyInstallation(
            kind,
            warm,
            slots=1 if role == "worker" else 2,
            trainer_failpoint=order if role == "trainer" else (),
            failpoint=order if role == "worker" else (),
        ) as installation:
            chaos, run_ids = Chaos(installation, seed=0), []
            (expected,) = references(installation, [RUN_CONFIG])
            for _ in range(BATCH_COUNT):
                batch = installation.queue([RUN_CONFIG] * 3)
                run_ids += batch
                while installation.unended(batch):
                    chaos.observe(run_ids)
                    if role == "worker":
                        _move_workers_on(installation, plan, chaos)
                    time.sleep(0.2)
                for pid in plan.takers():
                    plan.give_back(pid)
                if not plan.points("todo"):
                    break
            chaos.counts["failpoint"] = len(plan.points("hit"))
            verdict = reach_verdict(installation, chaos, dict.fromkeys(run_ids, expected))
            played_round = Round(kind, 0, chaos.counts, verdict, time.monotonic() - start_time)
            return played_round, plan.points("todo")


def _move_workers_on(installation: FaultyInstallation, plan: Plan, chaos: Chaos) -> None:
    """Replace each dead worker, and stop or kill processes for the points that need it."""
    alive_workers = {process.pid: process for process in installation.alive()}
    for pid, point in plan.takers().items():
        if pid not in alive_workers:
            plan.give_back(pid)
        elif ("_move_on" in point or "_settle" in point) and chaos.counts["trainer_killed"] < MAX_KILLS:
            chaos.strike([], "trainer_killed")
        elif "SlotPool.close" in point and pid in [trainer.worker_pid for trainer in installation.trainers()]:
            alive_workers[pid].send_signal(signal.SIGTERM)
            wait_for(lambda pid=pid: not is_alive(pid), "a worker ends")  # type: ignore[misc]
    while len(installation.alive()) < installation.workers:
        installation.start_worker()
