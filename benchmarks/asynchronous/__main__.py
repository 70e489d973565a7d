"""Throughput, mismatch and accuracy of rollouts that run 1, 2 and 4 versions ahead, against none.

    python -m benchmarks.asynchronous

Every variant trains the built-in policy with the local engine, in turns, once for each seed. Writes
results.md beside this file.
"""

import argparse
import os
import platform
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

import torch

from backend.base.settings import Settings
from backend.config.merge import resolve
from benchmarks.common.nothing import Nothing
from benchmarks.common.service import machine
from worker.recording.records import StepRecord
from worker.training.step_metrics import Metrics
from worker.training.trainer import Trainer

HERE = Path(__file__).parent
WARM_UP = 5
"""Steps that are not timed."""


class Variant(NamedTuple):
    """One way to train."""

    name: str
    ahead: int
    threads: int


VARIANTS = (
    Variant("synchronous", 0, 1),
    *(Variant(f"at most {ahead} ahead", ahead, 1) for ahead in (1, 2, 4)),
    Variant("synchronous, two threads", 0, 2),
)


class Listener(Nothing):
    """Keeps the metrics and the end of each step."""

    def __init__(self) -> None:
        self.steps: list[Metrics] = []
        self.ends: list[float] = []

    def record_step(self, record: StepRecord) -> None:
        if record.step:
            self.steps.append(dict(record.metrics))
            self.ends.append(time.perf_counter())


class Figures(NamedTuple):
    """What one run showed."""

    tokens_per_second: float
    waited: float
    staleness: float
    k3: float
    masked: float
    accuracy: float
    held_out: float


def main() -> None:
    """Train every variant with every seed, in turns; print and keep the table."""
    parser = argparse.ArgumentParser(description="asynchronous training against synchronous")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--most-threads", type=int, default=2, help="leave out variants with more")
    asked = parser.parse_args()
    variants = [variant for variant in VARIANTS if variant.threads <= asked.most_threads]
    found: dict[str, list[Figures]] = {variant.name: [] for variant in variants}
    load = os.getloadavg()[0]
    for seed in range(asked.seeds):
        for variant in variants:
            figures = trained(variant, seed=seed, steps=asked.steps)
            found[variant.name].append(figures)
            print(f"seed {seed}, {variant.name}: {figures}", flush=True)
    text = table(found, asked.steps, load)
    print(text)
    (HERE / "results.md").write_text(text + "\n", encoding="utf-8")


def trained(variant: Variant, *, seed: int, steps: int) -> Figures:
    """Train one run."""
    torch.set_num_threads(variant.threads)
    listener = Listener()
    base = {
        "steps": steps,
        "sampling": {"prompts_per_step": 16, "group_size": 8, "ahead": variant.ahead},
        "objective": {"correction": {"type": "token_tis"}},
        "evaluation": {"every": steps, "prompts": 128},
        "checkpointing": {"every": 0},
    }
    Trainer(
        resolve(base, {}, seed),
        listener,  # type: ignore[arg-type]
        settings=Settings(),
        checkpoints=Nothing(),  # type: ignore[arg-type]
        device="cpu",
        stopping=threading.Event(),
    ).train()
    timed = listener.steps[WARM_UP:]
    seconds = listener.ends[-2] - listener.ends[WARM_UP - 1]  # the last one evaluates
    last = listener.steps[-10:]
    return Figures(
        sum(step["tokens/generated"] for step in timed[:-1]) / seconds,
        fmean(step.get("time/wait_seconds", 0.0) / step["time/step_seconds"] for step in timed),
        fmean(step.get("sampling/staleness", 0.0) for step in timed),
        fmean(step["mismatch/k3"] for step in timed),
        fmean(step["mismatch/masked_frac"] for step in timed),
        fmean(step["reward/accuracy"] for step in last),
        listener.steps[-1]["eval/accuracy"],
    )


def table(found: dict[str, list[Figures]], steps: int, load: float) -> str:
    """The figures as Markdown: mean and standard deviation over the seeds."""
    on = ", ".join(f"{name} {value}" for name, value in machine().items())
    seeds = len(next(iter(found.values())))
    head = (
        f"`make bench-async`: seeds {seeds}, {steps} steps of 16 x 8 completions on `tiny`, local engine on "
        f"a CPU, {platform.machine()}, {on}. The load average was {load:.0f} when it began."
    )
    columns = (
        "rollouts",
        "tokens per second",
        "waiting, share of a step",
        "age, versions",
        "mismatch/k3, nats",
        "truncated tokens",
        "accuracy, last 10 steps",
        "held-out accuracy",
    )
    lines = [head, "", f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for name, runs in found.items():
        values = " | ".join(spelled(column) for column in zip(*runs, strict=True))
        lines.append(f"| {name} | {values} |")
    return "\n".join(lines)


def spelled(values: Sequence[float]) -> str:
    """Mean and standard deviation."""
    return f"{fmean(values):.3g}" + (f" ± {stdev(values):.2g}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
