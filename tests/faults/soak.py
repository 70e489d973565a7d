"""Hours of training with a fault now and then: nothing is lost and nothing grows (row 29 of the plan)."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import psutil

from tests.faults.campaign import Round, configs, references, verdict_of
from tests.faults.chaos import Chaos, plan
from tests.faults.plant import Kind, Plant
from tests.faults.verdict import Record

SAMPLE_SECONDS = 5.0
GROWTH = {
    "worker_rss_mb": (1.15, 10.0),
    "worker_fds": (1.0, 8.0),
    "reconciler_fds": (1.0, 8.0),
    "log_mb": (1.5, 70.0),
}
"""What may become of a median: times the first figure plus the second. SQLite cuts its log at 64 MiB."""


def soak(kind: Kind, warm: Path | None, *, seed: int, minutes: float, every_seconds: float) -> Round:
    """Runs follow one another for so many minutes, one fault each `every_seconds`."""
    run_configs = configs(4)
    started = time.monotonic()
    with Plant(kind, warm, slots=1) as plant:
        expected = references(plant, run_configs)
        chaos, hurt = Chaos(plant, seed), dict[str, Record]()
        chaos.gc_frozen = plant.crew[0].pid
        faults = plan(kind, seed, int(60 * minutes / every_seconds) + 1)
        samples: dict[str, list[float]] = {name: [] for name in GROWTH}
        next_fault = next_sample = deadline = time.monotonic()
        deadline += 60 * minutes
        while time.monotonic() < deadline:
            if len(plant.unended(list(hurt))) < plant.workers:
                hurt |= dict(zip(plant.queue(run_configs), expected, strict=True))
            if time.monotonic() > next_fault and chaos.strike(list(hurt), faults[0]):
                next_fault += every_seconds
                faults = faults[1:] or plan(kind, seed + 1, 1)
            if time.monotonic() > next_sample:
                next_sample += SAMPLE_SECONDS
                for name, measure in _measures(plant).items():
                    samples[name].append(measure())
            time.sleep(0.2)
        plant.wait_until_ended(list(hurt))
        chaos.look(list(hurt))
        verdict = verdict_of(plant, chaos, hurt)
    measured = {name: _course(values) for name, values in samples.items()}
    for name, (factor, allowance) in GROWTH.items():
        first, last = measured[name]
        if last > first * factor + allowance:
            verdict.sentences.append(f"{name} grew from {first:g} to {last:g}")
    return Round(kind, seed, chaos.counts, verdict, time.monotonic() - started, {"course": measured})


def _measures(plant: Plant) -> dict[str, Callable[[], float]]:
    worker, this_process = psutil.Process(plant.crew[0].pid), psutil.Process()
    return {
        "worker_rss_mb": lambda: worker.memory_info().rss / 1e6,
        "worker_fds": lambda: float(worker.num_fds()),
        "reconciler_fds": lambda: float(this_process.num_fds()),
        "log_mb": lambda: _log_bytes(plant) / 1e6,
    }


def _log_bytes(plant: Plant) -> int:
    """SQLite's write-ahead log, or Postgres's."""
    state = plant.settings.state
    files = state.glob("*-wal") if plant.postgres is None else plant.directory.glob("pg/data/pg_wal/0*")
    return sum(file.stat().st_size for file in files)


def _course(values: list[float]) -> tuple[float, float]:
    """The medians of the second and of the last quarter: the first one warms up."""
    quarter = max(1, len(values) // 4)
    return round(median(values[quarter : 2 * quarter] or values), 1), round(median(values[-quarter:]), 1)
