"""Waiting times of twenty people while four trainers record."""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from multiprocessing import get_context
from multiprocessing.synchronize import Event

from backend.config.merge import resolve
from backend.runs import lifecycle
from backend.storage.engine import open_engine, open_sessions
from backend.storage.models import Run
from benchmarks.common.recorded_step import recorded_step
from benchmarks.common.service import Service
from benchmarks.scale.measure import Request, timed
from worker.recording.recorder import Recorder

READERS = 20
"""Each asks for something at random once a second."""
TRAINERS = 4
STEPS_PER_SECOND = 4.0
"""Of each trainer."""


@dataclass(slots=True)
class AtWork:
    """What readers waited for, and what trainers stored meanwhile."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    steps: int = 0
    """Of all trainers, stored before the last reader went."""
    lasted: float = 0.0
    """Seconds."""
    catching_up: float = 0.0
    """The longest that a trainer then waited until all its steps were stored, seconds."""
    memory: tuple[int, int] = (0, 0)
    """Bytes of the process that answers, before and after."""


def measure_at_work(
    service: Service, url: str, kinds: dict[str, Callable[[], Request]], *, seconds: float
) -> AtWork:
    """Readers and trainers for so long; what readers ask while trainers start goes uncounted."""
    context = get_context("spawn")
    ready, done = [context.Event() for _ in range(TRAINERS)], context.Event()
    found = AtWork(seconds={name: [] for name in kinds})
    with context.Pool(TRAINERS, _share, (ready, done)) as pool:
        trainers = [pool.apply_async(_train, (url, number)) for number in range(TRAINERS)]
        for each in ready:
            if not each.wait(120):
                raise SystemExit("a trainer did not begin")
        server = service.server()
        before, started = server.memory_info().rss, time.perf_counter()
        _read(service, kinds, found, until=started + seconds)
        found.memory = before, server.memory_info().rss
        done.set()
        found.lasted = time.perf_counter() - started
        for trainer in trainers:
            steps, waited = trainer.get(120)
            found.steps += steps
            found.catching_up = max(found.catching_up, waited)
    return found


def _read(service: Service, kinds: dict[str, Callable[[], Request]], found: AtWork, *, until: float) -> None:
    lock = threading.Lock()

    def read(number: int) -> None:
        chance = random.Random(number)
        time.sleep(chance.random())
        while (began := time.perf_counter()) < until:
            with lock:
                name = chance.choice(list(kinds))
                request = kinds[name]()
            found.seconds[name].append(timed(service, *request))
            time.sleep(max(0.0, began + 1 - time.perf_counter()))

    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(read, range(READERS)))


_ready: list[Event]
_done: Event


def _share(ready: list[Event], done: Event) -> None:
    """Events reach a process when it starts."""
    global _ready, _done
    _ready, _done = ready, done


def _train(url: str, number: int) -> tuple[int, float]:
    """Record steps in time; how many were stored at the end, and how long the rest took."""
    engine = open_engine(url, pool_size=2)
    sessions = open_sessions(engine)
    config = resolve({"steps": 100_000}, {}, number)
    with sessions.begin() as session:
        document = config.model_dump(mode="json")
        about = {"name": f"at work {number}", "variant": "", "seed": number, "config_hash": ""}
        session.add(Run(config=document, steps=config.steps, status="queued", **about))
        session.flush()
        claim = lifecycle.claim_run(session, f"worker {number}", "host")
    if claim is None:
        raise LookupError("a run was queued for each trainer")
    drawn = [recorded_step(each) for each in range(1, 9)]
    with Recorder(sessions, claim.run_id, claim.attempt, config=config) as recorder:
        recorder.begin(-1)
        _ready[number].set()
        for step in count(1):
            recorder.record_step(replace(drawn[step % len(drawn)], step=step))
            if _done.wait(1 / STEPS_PER_SECOND):
                break
        with sessions() as session:
            stored = session.get_one(Run, claim.run_id).last_step
        started = time.perf_counter()
        recorder.flush()
        waited = time.perf_counter() - started
    engine.dispose()
    return stored, waited
