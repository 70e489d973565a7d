"""Write a large number of runs, as trainers write them but without the training."""

import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import insert, literal, select, update

from backend.analysis.diagnosis.detectors import VERSION
from backend.config.merge import config_hash, resolve
from backend.metrics.sealing import find_sealable, seal
from backend.metrics.store import write_points
from backend.rollouts.records import CompletionRecord, GroupRecord
from backend.rollouts.store import pack_groups, write_groups
from backend.storage.engine import Sessions, new_id, open_read_session
from backend.storage.models import ALL_PACKED, Attempt, Experiment, Metric, MetricBlock, Run
from backend.storage.rollout_words import index_groups

CURVE_METRICS = [f"reward/term_{number}/mean" for number in range(7)] + [
    "reward/mean",
    "policy/entropy",
    "time/wall_seconds",
]
"""Ten metrics of each run that has curves."""

WIDE_METRICS = [f"layer_{number}/gradient_norm" for number in range(200)]
"""Metrics that a run records at irregular steps: number n every n % 10 + 1 steps on average."""

STATUSES = ("finished", "finished", "finished", "stopped", "failed")
COMPLETIONS_PER_GROUP = 8
RARE_WORD = "quaternion"
"""A word that only occurs in the completions of one group of each run."""


@dataclass(frozen=True, slots=True)
class Size:
    """Amount of data."""

    runs: int = 10_000
    chart_runs: int = 50
    chart_steps: int = 10_000
    long_steps: int = 1_000_000
    """Number of points of one curve of one run."""
    short_runs: int = 400
    """Number of runs with ten curves of 1,000 steps."""
    copies: int = 9_400
    """Number of additional runs whose curves are copies of those."""
    wide_steps: int = 20_000
    """Number of steps of a run with 200 metrics, each at different steps."""
    rollouts: int = 1_000_000
    """Number of completions, half of them in one run."""

    def scaled(self, share: float) -> "Size":
        """Return smaller sizes, to try the benchmark itself."""
        return Size(
            runs=max(200, int(self.runs * share)),
            chart_runs=self.chart_runs,
            chart_steps=max(100, int(self.chart_steps * share)),
            long_steps=max(1_000, int(self.long_steps * share)),
            short_runs=max(2, int(self.short_runs * share)),
            copies=int(self.copies * share),
            wide_steps=max(200, int(self.wide_steps * share)),
            rollouts=max(1_600, int(self.rollouts * share)),
        )


@dataclass(frozen=True, slots=True)
class Filled:
    """Amount of written data and speed of writing."""

    long_run: str
    wide_run: str
    chart_runs: list[str]
    rollout_run: str
    """The run with half of all rollouts."""
    points: int
    points_per_second: float
    """Speed at which points other than copies were stored."""
    sealed_per_second: float
    """Speed at which the points were sealed, which the service does in the background."""
    rollouts: int
    rollouts_per_second: float


def fill(sessions: Sessions, size: Size) -> Filled:
    """Write everything into an empty database."""
    ids = _runs(sessions, size.runs)
    chart_runs, later_runs = ids[: size.chart_runs], ids[size.chart_runs :]
    long_run, wide_run, rollout_run, *ordinary_runs = later_runs
    started_at = time.perf_counter()
    points = sum(_curves(sessions, run, CURVE_METRICS, size.chart_steps) for run in chart_runs)
    points += sum(_curves(sessions, run, CURVE_METRICS, 1_000) for run in ordinary_runs[: size.short_runs])
    points += _curves(sessions, long_run, ["reward/mean"], size.long_steps)
    points += _wide(sessions, wide_run, size.wide_steps)
    seconds = time.perf_counter() - started_at
    sealing_seconds = seal_all(sessions)
    sources, targets = ordinary_runs[: size.short_runs], ordinary_runs[size.short_runs :][: size.copies]
    copied_points = _copy(sessions, sources, targets)
    started_at = time.perf_counter()
    groups = size.rollouts // COMPLETIONS_PER_GROUP // 2
    rollouts = _rollouts(sessions, rollout_run, groups)
    rollouts += sum(_rollouts(sessions, run, groups // 10) for run in ordinary_runs[:10])
    rollout_seconds = time.perf_counter() - started_at
    for _ in index_groups(sessions):
        pass
    return Filled(
        long_run=long_run,
        wide_run=wide_run,
        chart_runs=chart_runs,
        rollout_run=rollout_run,
        points=points + copied_points,
        points_per_second=points / seconds,
        sealed_per_second=points / sealing_seconds,
        rollouts=rollouts,
        rollouts_per_second=rollouts / rollout_seconds,
    )


def run_row(number: int, experiment: str, chance: random.Random) -> dict[str, Any]:
    """Return the row of an ended run, judged by its trainer, with the summary of an ordinary run."""
    config = resolve({}, None, number % 5)
    last = {f"family_{n % 8}/metric_{n}": chance.gauss(0, 1) for n in range(40)}
    last |= {"reward/mean": chance.random(), "eval/accuracy": chance.random()}
    best = {"eval/accuracy": {"value": last["eval/accuracy"], "step": 100}}
    return {
        "id": new_id(),
        "name": f"run-{number:05}",
        "experiment_id": experiment,
        "variant": ("grpo", "dapo", "dr_grpo", "gspo")[number % 4],
        "seed": number % 5,
        "config": config.model_dump(mode="json"),
        "config_hash": config_hash(config),
        "steps": config.steps,
        "status": STATUSES[number % len(STATUSES)],
        "attempt": 1,
        "last_step": 150,
        "judged_step": 150,
        "judged_by": VERSION,
        "summary": {"step": 150, "last": last, "best": best},
        "tags": ["baseline"] if number % 7 == 0 else [],
    }


def attempt_row(run: str) -> dict[str, Any]:
    """Return the row of a run's only attempt."""
    return {"run_id": run, "number": 1, "from_step": -1, "worker_id": "w", "host": "h"}


def _runs(sessions: Sessions, count: int) -> list[str]:
    """Add runs in experiments of twenty."""
    chance = random.Random(0)
    ids: list[str] = []
    for first in range(0, count, 1_000):
        with sessions.begin() as session:
            rows = []
            for number in range(first, min(first + 1_000, count)):
                if number % 20 == 0:
                    experiment = Experiment(
                        name=f"sweep {number // 20}",
                        request={"variants": [], "seeds": []},
                        request_hash="0" * 64,
                    )
                    session.add(experiment)
                    session.flush()
                rows.append(run_row(number, experiment.id, chance))
            session.execute(insert(Run), rows)
            session.execute(insert(Attempt), [attempt_row(row["id"]) for row in rows])
            ids += [row["id"] for row in rows]
    return ids


def ended_at(steps: int) -> dict[str, int]:
    """Return the columns of a run whose trainer has judged its last step."""
    return {"steps": steps, "last_step": steps, "judged_step": steps}


def _curves(sessions: Sessions, run: str, metrics: list[str], steps: int) -> int:
    """Add the points of a run in transactions of 20,000; every curve has one spike and one NaN."""
    with sessions.begin() as session:
        session.execute(update(Run).where(Run.id == run).values(**ended_at(steps)))
    chance = np.random.default_rng(len(metrics) * steps)
    per_transaction = 20_000 // len(metrics)
    for first in range(1, steps + 1, per_transaction):
        noise = chance.normal(0, 0.02, (per_transaction, len(metrics)))
        batch = [
            (first + row, dict(zip(metrics, values, strict=True)))
            for row, values in enumerate(noise[: steps + 1 - first].tolist())
        ]
        for step, values in batch:
            if step == steps // 2:
                values.update(dict.fromkeys(metrics, 1e3))
            if step == steps // 3:
                values.update(dict.fromkeys(metrics, math.nan))
        with sessions.begin() as session:
            write_points(session, run, 1, batch)
    return steps * len(metrics)


def _wide(sessions: Sessions, run: str, steps: int) -> int:
    """Add points at irregular steps, of which one in a hundred is NaN. The last metric is always NaN."""
    with sessions.begin() as session:
        session.execute(update(Run).where(Run.id == run).values(**ended_at(steps)))
    chance = np.random.default_rng(0)
    share = 1 / (np.arange(len(WIDE_METRICS)) % 10 + 1)
    points = 0
    for first in range(1, steps + 1, 500):
        batch = []
        for step in range(first, min(first + 500, steps + 1)):
            values = chance.normal(1, 0.1, len(WIDE_METRICS))
            values[chance.random(len(WIDE_METRICS)) < 0.01] = math.nan
            values[-1] = math.nan
            indices = np.flatnonzero(chance.random(len(WIDE_METRICS)) < share)
            batch.append((step, {WIDE_METRICS[index]: float(values[index]) for index in indices}))
        with sessions.begin() as session:
            write_points(session, run, 1, batch)
        points += sum(len(values) for _, values in batch)
    return points


def seal_all(sessions: Sessions) -> float:
    """Seal all points, as the service would have done, and return the seconds that it took."""
    started_at = time.perf_counter()
    while True:
        with open_read_session(sessions) as session:
            tasks = find_sealable(session)
        if not tasks:
            return time.perf_counter() - started_at
        for _ in seal(sessions, tasks):
            pass


def _copy(sessions: Sessions, sources: list[str], targets: list[str]) -> int:
    """Copy the curves of the sources to the targets within the database."""
    point_count = 0
    for first in range(0, len(targets), 20):
        with sessions.begin() as session:
            for number, target in enumerate(targets[first : first + 20], first):
                source = sources[number % len(sources)]
                for table in (Metric, MetricBlock):
                    columns = [column for column in table.__table__.columns if column.name != "run_id"]
                    rows = select(literal(target), *columns).where(table.run_id == source)
                    names = ["run_id", *(column.name for column in columns)]
                    session.execute(insert(table).from_select(names, rows))
                session.execute(update(Run).where(Run.id == target).values(**ended_at(1_000)))
                session.execute(
                    update(Attempt).where(Attempt.run_id == target).values(packed_step=ALL_PACKED)
                )
                point_count += 1_000 * len(CURVE_METRICS)
    return point_count


def _rollouts(sessions: Sessions, run: str, groups: int) -> int:
    """Add groups of eight completions, sixteen per step."""
    chance = random.Random(groups)
    for first in range(0, groups, 512):
        with sessions.begin() as session:
            for step in range(first // 16, min(first + 512, groups) // 16):
                group_records = list(_groups(step, chance))
                write_groups(session, pack_groups(run, step + 1, 1, group_records, with_tokens=False))
    return groups // 16 * 16 * COMPLETIONS_PER_GROUP


def _groups(step: int, chance: random.Random) -> Iterator[GroupRecord]:
    for index in range(16):
        a, b, c = (chance.randint(10, 99) for _ in range(3))
        yield GroupRecord(
            kind="train",
            prompt_index=index,
            prompt_id=f"sums-{chance.randint(0, 4_000)}",
            problem="sums",
            domain="sums",
            prompt=f"{a}+{b}+{c}=?",
            answer=str(a + b + c),
            completions=tuple(
                _completion(a, b, c, step * 16 + index, chance) for _ in range(COMPLETIONS_PER_GROUP)
            ),
        )


def _completion(a: int, b: int, c: int, index: int, chance: random.Random) -> CompletionRecord:
    is_right = chance.random() < 0.4
    result = a + b + c + (0 if is_right else chance.randint(1, 9))
    rare_word = f" {RARE_WORD}" if index == 7 else ""
    text = f"<think>{a}+{b}={a + b}, {a + b}+{c}={result}{rare_word}</think>\\boxed{{{result}}}"
    return CompletionRecord(
        text=text,
        token_strings=(),
        token_ids=np.zeros(len(text), dtype=np.int64),
        reward=float(is_right),
        rewards={"correctness": float(is_right)},
        advantage=chance.gauss(0, 1),
        finish_reason="stop",
        correct=is_right,
        flags=(),
        arrays={},
    )
