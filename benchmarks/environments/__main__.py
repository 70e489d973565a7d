"""Learning curves of a planted task with a tool and without.

    python -m benchmarks.environments

Every question is a sum such as `59+63=?` whose value is drawn at random: only the table of its row knows it,
and only the tool `lookup` shows it, behind `59+63=`. Values of training rows say nothing about those of
held-out rows, so without the tool one answer in 800 is right by chance. The policy starts as it is: it knows
sums of three numbers, miscopies two, and goes on to add a third; it has to learn to ask for the key of its
row and to repeat what the tool wrote. Writes results.md and results.json beside this file.
"""

import argparse
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from backend.base.settings import Settings
from backend.config.merge import resolve
from benchmarks.common.nothing import Nothing
from benchmarks.common.service import machine
from worker.recording.records import StepRecord
from worker.training.step_metrics import Metrics
from worker.training.trainer import Trainer

HERE = Path(__file__).parent
ROWS = 20_000
LOW, HIGH = 200, 999
"""Values are drawn from these: most of them no sum of two numbers below 100."""

TOOL: dict[str, Any] = {
    "type": "tool_use",
    "tools": ["lookup"],
    "form": "equation",
    "max_observation_tokens": 8,
}
VARIANTS: Mapping[str, dict[str, Any]] = {"with the tool": TOOL, "in a single turn": {"type": "none"}}


class Listener(Nothing):
    """Keeps the metrics of each step, the evaluation before the first among them."""

    def __init__(self) -> None:
        self.steps: dict[int, Metrics] = {}

    def record_step(self, record: StepRecord) -> None:
        self.steps[record.step] = dict(record.metrics)
        if "eval/accuracy" in record.metrics:
            print(f"  step {record.step}: held out {record.metrics['eval/accuracy']:.3f}", flush=True)


def planted_row(rng: random.Random) -> dict[str, Any]:
    """One question with its table."""
    key, value = "+".join(str(rng.randint(10, 99)) for _ in range(2)), str(rng.randint(LOW, HIGH))
    return {"prompt": f"{key}=?", "answer": value, "table": {key: value}}


def write_rows(path: Path) -> None:
    """The planted data set, the same for all runs."""
    rng = random.Random(20_260_101)
    rows = {row["prompt"]: row for row in (planted_row(rng) for _ in range(ROWS))}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows.values()), encoding="utf-8")


def trained(environment: dict[str, Any], datasets: Path, *, seed: int, steps: int) -> Listener:
    """Train one run."""
    listener = Listener()
    base = {
        "steps": steps,
        "problems": [{"name": "file", "path": "planted.jsonl"}],
        "environment": environment,
        "sampling": {"prompts_per_step": 16, "group_size": 16},
        "evaluation": {"every": 5, "prompts": 200},
        "checkpointing": {"every": 0},
    }
    Trainer(
        resolve(base, {}, seed),
        listener,  # type: ignore[arg-type]
        settings=Settings(datasets_dir=datasets),
        checkpoints=Nothing(),  # type: ignore[arg-type]
        device="cpu",
        stopping=threading.Event(),
    ).train()
    return listener


def main() -> None:
    """Train both ways with every seed, in turns; print and keep the curves."""
    parser = argparse.ArgumentParser(description="a planted task with a tool and without")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    found: dict[str, list[dict[int, Metrics]]] = {name: [] for name in VARIANTS}
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        write_rows(Path(directory) / "planted.jsonl")
        for seed in range(asked.seeds):
            for name, environment in VARIANTS.items():
                started = time.perf_counter()
                steps = trained(environment, Path(directory), seed=seed, steps=asked.steps).steps
                seconds.append(time.perf_counter() - started)
                found[name].append(steps)
                print(f"seed {seed}, {name}: {curve(steps)}, {seconds[-1]:.0f} s", flush=True)
    text = table(found, asked.steps, load, fmean(seconds))
    print(text)
    (HERE / "results.md").write_text(text + "\n", encoding="utf-8")
    kept = {name: [curve(steps) for steps in runs] for name, runs in found.items()}
    (HERE / "results.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def curve(steps: Mapping[int, Metrics]) -> dict[int, float]:
    """Held-out accuracy by step."""
    return {step: m["eval/accuracy"] for step, m in steps.items() if "eval/accuracy" in m}


def table(found: Mapping[str, list[dict[int, Metrics]]], steps: int, load: float, seconds: float) -> str:
    """The held-out accuracies as Markdown: mean and standard deviation over the seeds."""
    on = ", ".join(f"{name} {value}" for name, value in machine().items())
    [seeds] = {len(runs) for runs in found.values()}
    head = (
        f"`make bench-environments`: seeds {seeds}, {steps} steps of 16 x 16 completions on `tiny`, one CPU "
        f"thread, {on}. Accuracy on 200 held-out questions, greedy. A run took {seconds:.0f} s; the load "
        f"average was {load:.0f} when it began."
    )
    shown = sorted(curve(next(iter(found.values()))[0]))
    lines = [head, "", f"| step | {' | '.join(found)} |", "| --- " * (len(found) + 1) + "|"]
    for step in shown:
        values = [spelled([curve(run)[step] for run in runs]) for runs in found.values()]
        lines.append(f"| {step} | {' | '.join(values)} |")
    return "\n".join(lines)


def spelled(values: Sequence[float]) -> str:
    """Mean and standard deviation."""
    return f"{fmean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
