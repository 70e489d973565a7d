"""Stops of runs and workers on request: how soon they end, without a lost step (row 17 of the plan).

stop_wished          the user stops a run, which ends within a step and 5 s
worker_asked         SIGTERM to a worker: its trainer saves within 30 s, and it exits with code 0
worker_asked_twice   with a trainer that does not react, a second SIGTERM ends the wait"""

import random
import signal
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from sqlalchemy import func, select

from backend.runs import lifecycle
from backend.storage.engine import open_read_session
from backend.storage.models import Attempt, Checkpoint, Worker
from tests.faults.campaign import Round, configs, reach_verdict, references
from tests.faults.chaos import Chaos
from tests.faults.plant import FaultyInstallation, Kind, Trainer
from tests.faults.processes import has_pending, send
from tests.stored_points import stored_points
from tests.waiting import wait_for

STOP_KINDS = ("stop_wished", "worker_asked", "worker_asked_twice")

MAX_STOP_SECONDS = 5.0
"""Maximum time beyond the longest step on a machine that is not overloaded."""

STEP_COUNT = 18


def stop(kind: Kind, warm: Path | None, *, seed: int, times: int) -> Round:
    """End a run this number of times, in each way in turn, with a new run if one ends too soon."""
    start_time = time.monotonic()
    with FaultyInstallation(kind, warm, workers=1, slots=1) as installation:
        (config,) = configs(1, steps=STEP_COUNT)
        (expected,) = references(installation, [config])
        enders = Enders(installation, seed)
        run_ids = installation.queue([config])
        for number in range(times):
            victim = enders.next_victim(run_ids, config)
            enders.chaos.observe(run_ids)
            getattr(enders, STOP_KINDS[number % len(STOP_KINDS)])(victim)
        installation.wait_until_ended(run_ids)
        verdict = reach_verdict(installation, enders.chaos, dict.fromkeys(run_ids, expected))
    verdict.sentences.extend(enders.sentences)
    figures: dict[str, Any] = {
        f"{ending}_seconds": [round(median(durations), 2), round(max(durations), 2)]
        for ending, durations in enders.seconds.items()
        if durations
    }
    figures["late_stops"] = enders.late
    return Round(kind, seed, enders.chaos.counts, verdict, time.monotonic() - start_time, figures)


class Enders:
    """The ways to end, each a method named after its fault, with the measured durations."""

    def __init__(self, installation: FaultyInstallation, seed: int) -> None:
        self.installation = installation
        self.chaos = Chaos(installation, seed)
        self.seconds: dict[str, list[float]] = {ending: [] for ending in STOP_KINDS}
        self.sentences: list[str] = []
        self.late = 0
        """Number of runs that took longer to stop than a step and `MAX_STOP_SECONDS`."""
        self._random = random.Random(seed)

    def next_victim(self, run_ids: list[str], config: dict[str, object]) -> Trainer:
        """Return a trainer that has made at least one more step, of a new run if this one has ended."""

        def find_victims() -> list[Trainer]:
            if not self.installation.unended(run_ids):
                run_ids.extend(self.installation.queue([config]))
            return [
                trainer
                for trainer in self.installation.trainers()
                if trainer.step > max(trainer.began_at, 0) + steps
            ]

        steps = self._random.randrange(3)
        return wait_for(find_victims, "a trainer gets on")[0]

    def stop_wished(self, victim: Trainer) -> None:
        """Send the user's request to stop, and then resume."""
        asked_at = time.monotonic()
        with self.installation.sessions.begin() as session:
            lifecycle.request_action(session, victim.run_id, "stop")
        wait_for(lambda: self.installation.read(victim.run_id).status != "running", "a run stops")
        duration = self._note("stop_wished", asked_at)
        if self.installation.read(victim.run_id).status != "stopped":
            return  # it had just ended
        self._check_saved("stop_wished", victim)
        self.late += duration > self._longest_step(victim) + MAX_STOP_SECONDS
        with self.installation.sessions.begin() as session:
            lifecycle.resume_run(session, victim.run_id)

    def worker_asked(self, victim: Trainer) -> None:
        """Send the worker one SIGTERM."""
        asked_at = time.monotonic()
        self._end(victim, "worker_asked")
        self._note("worker_asked", asked_at)
        self._check_saved("worker_asked", victim)  # it is no longer alive after the grace period
        self.installation.start_worker()

    def worker_asked_twice(self, victim: Trainer) -> None:
        """Send two SIGTERMs while a trainer is in an endless step."""
        send(victim.pid, signal.SIGSTOP)
        stub = self._load_pid(victim)
        asked_at = time.monotonic()
        self._ask()
        wait_for(lambda: has_pending(victim.pid, signal.SIGTERM), "the worker asks its trainer to end")
        if not psutil.pid_exists(stub) or not self.installation.alive():
            self.sentences.append("one SIGTERM did not wait for a trainer that does not react")
        self._end(victim, "worker_asked_twice", frozen=stub)
        self._note("worker_asked_twice", asked_at)
        self.installation.start_worker()

    def _note(self, ending: str, requested_at: float) -> float:
        duration = time.monotonic() - requested_at
        self.seconds[ending].append(duration)
        self.chaos.counts[ending] += 1
        return duration

    def _ask(self) -> "subprocess.Popen[bytes]":
        (worker,) = self.installation.alive()
        worker.send_signal(signal.SIGTERM)
        return worker

    def _end(self, victim: Trainer, ending: str, *, frozen: int = 0) -> None:
        worker = self._ask()
        if frozen:  # a forked trainer is outside the session that its supervisor kills
            wait_for(lambda: not psutil.pid_exists(frozen), "a trainer that does not react is ended")
            send(victim.pid, signal.SIGKILL)
        if code := worker.wait(180):
            self.sentences.append(f"{ending}: the worker ended with code {code}")
        with open_read_session(self.installation.sessions) as session:
            if session.scalar(select(Worker.id).where(Worker.pid == worker.pid).limit(1)):
                self.sentences.append(f"{ending}: the worker left itself in the record")
        if (status := self.installation.read(victim.run_id).status) not in ("queued", "finished"):
            self.sentences.append(f"{ending}: the run is {status}")

    def _check_saved(self, ending: str, victim: Trainer) -> None:
        run = self.installation.read(victim.run_id)
        newest_query = select(func.max(Checkpoint.step)).where(Checkpoint.run_id == victim.run_id)
        with open_read_session(self.installation.sessions) as session:
            saved_step = session.scalar(newest_query)
        if saved_step != run.last_step:
            self.sentences.append(
                f"{ending}: the run is at step {run.last_step}, its newest checkpoint at {saved_step}"
            )

    def _longest_step(self, victim: Trainer) -> float:
        with open_read_session(self.installation.sessions) as session:
            points = stored_points(session, victim.run_id)
        return max((point.value for point in points if point.name == "time/step_seconds"), default=0.0)

    def _load_pid(self, victim: Trainer) -> int:
        """Return the process that the supervisor knows."""
        with open_read_session(self.installation.sessions) as session:
            attempt = session.get_one(Attempt, (victim.run_id, victim.attempt))
        return attempt.pid or 0
