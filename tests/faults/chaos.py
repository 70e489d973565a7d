"""Random faults on an installation while it trains, each a method named after its effect."""

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import select

from backend.storage.engine import open_read_session
from backend.storage.models import Checkpoint
from tests.faults.plant import FaultyInstallation, Kind, Trainer
from tests.faults.processes import freeze, is_alive, send
from tests.faults.verdict import Witness
from tests.waiting import TookTooLong, wait_for

WEIGHT_BY_FAULT = {
    "trainer_killed": 50,
    "worker_killed": 12,
    "broker_killed": 14,
    "broker_flushed": 3,
    "broker_frozen": 1,
    "postgres_crashed": 10,
    "postgres_frozen": 1,
    "backends_ended": 4,
    "frozen_past_lease": 3,
    "checkpoint_damaged": 6,
}
"""Relative frequency of each fault, if it applies."""

FROZEN_SECONDS = 3.0
"""Duration for which a broker or a database is frozen, which exceeds a lease."""

DAMAGE_KINDS = ("flip", "cut", "file", "directory", "swap")
"""Ways to damage a checkpoint."""


def plan(kind: Kind, seed: int, number: int, names: Sequence[str] = ()) -> list[str]:
    """Return this number of faults in an order drawn with the seed, limited to `names` if it is not empty."""
    weight_by_fault = {
        name: weight
        for name, weight in WEIGHT_BY_FAULT.items()
        if (not names or name in names)
        and not (name.startswith(("postgres", "backends")) and kind.database == "sqlite")
        and not (name.startswith("broker") and kind.broker == "filesystem")
    }
    return random.Random(seed).choices(list(weight_by_fault), list(weight_by_fault.values()), k=number)


class Chaos:
    """Random faults for an installation. The same seed chooses the same faults, although at other moments."""

    def __init__(self, installation: FaultyInstallation, seed: int) -> None:
        self.installation = installation
        self.counts: Counter[str] = Counter()
        self.witness = Witness()
        self.gc_frozen = 0
        """Process id of a worker that is never killed or frozen."""
        self._random = random.Random(seed)

    def storm(self, run_ids: Sequence[str], faults: list[str], *, pause_seconds: float = 0.4) -> None:
        """Cause the listed faults while the runs train, and then wait until they have ended."""
        while faults and self.installation.unended(run_ids):
            time.sleep(self._random.uniform(0, 2 * pause_seconds))
            if self.strike(run_ids, faults[0]):
                del faults[0]
        self.installation.wait_until_ended(run_ids)
        self.observe(run_ids)

    def strike(self, run_ids: Sequence[str], name: str) -> bool:
        """Cause one fault, and return False if there was nothing to disturb."""
        self.observe(run_ids)
        count_before = self.counts.total()
        getattr(self, f"_{name}")()
        return self.counts.total() > count_before

    def observe(self, run_ids: Sequence[str]) -> None:
        """Remember what is committed."""
        with open_read_session(self.installation.sessions) as session:
            self.witness.observe(session, run_ids)

    def _victim(self) -> Trainer | None:
        """Return a trainer, usually one with progress, since a run without progress would never end."""
        trainers = self.installation.trainers()
        started_trainers = [trainer for trainer in trainers if trainer.step > max(trainer.began_at, 0)]
        candidates = started_trainers if started_trainers and self._random.random() < 0.8 else trainers
        return self._random.choice(candidates) if candidates else None

    def _trainer_killed(self) -> None:
        victim = self._victim()
        if victim is not None and send(victim.pid, signal.SIGKILL):
            self.counts["trainer_killed"] += 1

    def _worker_killed(self) -> None:
        victim = self._victim()
        workers = {
            process.pid: process for process in self.installation.alive() if process.pid != self.gc_frozen
        }
        if victim is None or victim.worker_pid not in workers:
            return
        process = workers[victim.worker_pid]
        orphans = [
            trainer.pid for trainer in self.installation.trainers() if trainer.worker_pid == process.pid
        ]
        process.kill()
        process.wait()
        self.counts["worker_killed"] += 1
        wait_for(lambda: not any(map(is_alive, orphans)), "the trainers of a dead worker end")
        self.installation.start_worker()

    def _machine_lost(self) -> None:
        """Kill all workers and trainers and delete the checkpoints, so that others take over."""
        victims = self.installation.alive()
        if self._victim() is None:
            return
        orphans = [trainer.pid for trainer in self.installation.trainers()]
        for process in victims:
            process.kill()
            process.wait()
        wait_for(lambda: not any(map(is_alive, orphans)), "the trainers of a lost machine end")
        shutil.rmtree(self.installation.settings.state / "runs", ignore_errors=True)
        self.counts["machine_lost"] += 1
        for _ in victims:
            self.installation.start_worker()

    def _broker_killed(self) -> None:
        self.installation.kill_broker(away_seconds=self._random.choice((0.0, 0.0, 0.5)))
        self.counts["broker_killed"] += 1

    def _broker_flushed(self) -> None:
        self.installation.flush_broker()
        self.counts["broker_flushed"] += 1

    def _postgres_crashed(self) -> None:
        self.installation.crash_postgres(away_seconds=self._random.choice((0.0, 0.0, 1.0)))
        self.counts["postgres_crashed"] += 1

    def _broker_frozen(self) -> None:
        """Freeze the broker, which then accepts data and never answers."""
        assert self.installation.broker is not None
        with freeze(self.installation.broker.pid):
            time.sleep(FROZEN_SECONDS)
        self.counts["broker_frozen"] += 1

    def _postgres_frozen(self) -> None:
        with freeze(*self.installation.postgres_processes()):
            time.sleep(FROZEN_SECONDS)
        self.counts["postgres_frozen"] += 1

    def _backends_ended(self) -> None:
        self.installation.end_backends()
        self.counts["backends_ended"] += 1

    def _frozen_past_lease(self) -> None:
        """Freeze a trainer and its worker until another attempt has the run, then wake them."""
        victim = self._victim()
        if victim is None or victim.worker_pid == self.gc_frozen or len(self.installation.alive()) < 2:
            return
        with freeze(victim.pid, victim.worker_pid):
            try:
                wait_for(lambda: self._is_over(victim), "another worker takes over", seconds=20)
            except TookTooLong:
                return  # the other worker was busy the whole time
            self.counts["frozen_past_lease"] += 1
            rows_before = self._count_rows(victim)
        wait_for(lambda: not is_alive(victim.pid), "a trainer that woke too late ends")
        self.counts["stale_rows"] += self._count_rows(victim) - rows_before

    def _is_over(self, victim: Trainer) -> bool:
        run = self.installation.read(victim.run_id)
        return run.attempt > victim.attempt or run.status not in ("queued", "running")

    def _count_rows(self, victim: Trainer) -> int:
        self.observe([victim.run_id])
        return sum(1 for _, attempt in self.witness.steps.get(victim.run_id, ()) if attempt == victim.attempt)

    def _checkpoint_damaged(self) -> None:
        """Damage the newest checkpoint and kill its trainer, while an older complete one remains."""
        victim = self._victim()
        if victim is None or not send(victim.pid, signal.SIGSTOP):
            return
        rows = self.rows(victim.run_id)
        undamaged_rows = [row for row in rows if f"{row.run_id}/{row.path}" not in self.installation.damaged]
        if len(undamaged_rows) < 2:
            send(victim.pid, signal.SIGCONT)
            return
        newest_directory, older_directory = (
            self.installation.settings.artifact_dir(row.run_id) / row.path for row in undamaged_rows[:2]
        )
        self.installation.damaged.add(f"{victim.run_id}/{newest_directory.name}")
        damage(newest_directory, self._random.choice(DAMAGE_KINDS), older_directory, self._random)
        send(victim.pid, signal.SIGKILL)
        self.counts.update(("checkpoint_damaged", "trainer_killed"))

    def rows(self, run_id: str) -> list[Any]:
        """Return the run's checkpoints, newest first."""
        query = select(Checkpoint).where(Checkpoint.run_id == run_id)
        with open_read_session(self.installation.sessions) as session:
            return list(session.scalars(query.order_by(Checkpoint.step.desc(), Checkpoint.attempt.desc())))


def damage(checkpoint: Path, damage_kind: str, older_checkpoint: Path, rng: random.Random) -> None:
    """Flip a bit, truncate a file, remove one or all files, or replace them with another checkpoint."""
    file = rng.choice(sorted(path for path in checkpoint.rglob("*") if path.is_file()))
    match damage_kind:
        case "flip":
            content = bytearray(file.read_bytes())
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            file.write_bytes(content)
        case "cut":
            file.write_bytes(file.read_bytes()[: rng.randrange(file.stat().st_size)])
        case "file":
            file.unlink()
        case "directory":
            shutil.rmtree(checkpoint)
        case "swap":
            shutil.rmtree(checkpoint)
            shutil.copytree(older_checkpoint, checkpoint)
