"""Doorbells that are delivered twice or more, to many workers at once: no run starts twice (row 7)."""

import random
import time
from collections import Counter
from pathlib import Path

from kombu import Queue
from sqlalchemy import select

from backend.base.settings import Settings
from backend.runs.queue.doorbell import QUEUE, TASK, worker_queue
from backend.storage.engine import new_id, reading
from backend.storage.models import Run
from tests.faults.campaign import BASE, VARIANTS, Round, references, verdict_of
from tests.faults.chaos import Chaos
from tests.faults.plant import Kind, Plant
from tests.waiting import wait_for

CONFIG = BASE | VARIANTS[0] | {"seed": 0, "steps": 2, "evaluation": {"every": 0}}
"""As little as a run of the tiny policy can train: what starts twice would show in its rows."""

WAVE = 4
"""Runs that are queued together: fewer than workers, so that they race for each."""


def ring_doubled(kind: Kind, warm: Path | None, *, seed: int, runs: int, bells: int, workers: int) -> Round:
    """So many runs under so many doubled messages, spread over waves of a few runs."""
    chance, started = random.Random(seed), time.monotonic()
    waves = [min(WAVE, runs - first) for first in range(0, runs, WAVE)]
    delivered = 0
    with Plant(kind, warm, workers=workers, slots=1, lease_seconds=30) as plant:
        plant.wait_for_workers()
        (expected,) = references(plant, [CONFIG])
        chaos = Chaos(plant, seed)
        run_ids: list[str] = []
        for number, size in enumerate(waves):
            wave = plant.queue([CONFIG] * size)
            share = bells * (number + 1) // len(waves) - bells * number // len(waves)
            delivered += sum(_deliver(plant.settings, times=chance.choice((2, 2, 3))) for _ in range(share))
            chaos.counts["bell_doubled"] += share
            plant.wait_until_ended(wave)
            wait_for(lambda: _waiting(plant.settings) == 0, "every bell is heard")
            run_ids += wave
        chaos.look(run_ids)
        verdict = verdict_of(plant, chaos, dict.fromkeys(run_ids, expected))
        with reading(plant.sessions) as session:
            again = select(Run.id, Run.attempt).where(Run.id.in_(run_ids), Run.attempt != 1)
            twice = session.execute(again.order_by(Run.id)).all()
    verdict.double += len(twice)
    verdict.sentences.extend(f"run {run_id} was started {attempt} times" for run_id, attempt in twice)
    measured = {"workers": workers, "deliveries": delivered, "trained": "grpo on the tiny policy, 2 steps"}
    return Round(kind, seed, Counter(chaos.counts), verdict, time.monotonic() - started, measured)


def _deliver(settings: Settings, *, times: int) -> int:
    """One message with one id, as often as a broker that lost count delivers it."""
    message = new_id()
    for _ in range(times):
        worker_queue(settings).send_task(TASK, task_id=message, queue=QUEUE, retry=False)
    return times


def _waiting(settings: Settings) -> int:
    """Messages that no worker has taken yet."""
    with worker_queue(settings).connection_for_read() as connection:
        return int(Queue(QUEUE)(connection.default_channel).queue_declare().message_count)
