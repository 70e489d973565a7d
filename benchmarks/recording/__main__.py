"""What keeping a run costs: the same run with recording and checkpoints and without, in alternating rounds.

    python -m benchmarks.recording

Both sides train the same tokens. Processor time counts every thread, so what the writer thread does beside
training counts too; it hardly depends on what else the machine does. Writes results.md beside this file.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
SIDES = {"nothing kept": False, "recording and checkpoints": True}

CLOCKS = {
    "thread": "processor time, training thread",
    "process": "processor time, every thread",
    "wall": "wall time",
}

CALLS = {
    "hand over": "handing a step to the writer",
    "records": "laying its rollouts out",
    "checkpoint": "a checkpoint",
}
"""What the training thread itself does for the record."""


def main() -> None:
    parser = argparse.ArgumentParser(description="cost of recording and checkpoints")
    parser.add_argument("--steps", type=int, default=55)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--directory", default=None, help="where the runs are kept (default: a temporary one)"
    )
    arguments = parser.parse_args()
    sides: dict[str, list[dict[str, Any]]] = {name: [] for name in SIDES}
    for number in range(arguments.rounds):
        # Each side goes first as often as the other.
        for name in sorted(SIDES, reverse=bool(number % 2)):
            sides[name].append(one_run(arguments, is_kept=SIDES[name]))
        last = {name: rounds[-1]["process"] for name, rounds in sides.items()}
        print(
            f"round {number + 1}: " + ", ".join(f"{name} {value:.4f} s" for name, value in last.items()),
            flush=True,
        )
    text = table(sides, arguments)
    print(f"\n{text}")
    (HERE / "results.md").write_text(text + "\n", encoding="utf-8")


def one_run(arguments: argparse.Namespace, *, is_kept: bool) -> dict[str, Any]:
    """The report of one run, in a process of its own."""
    job = {
        "steps": arguments.steps,
        "threads": arguments.threads,
        "directory": arguments.directory,
        "is_kept": is_kept,
    }
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.recording.one_run"]
    done = subprocess.run(
        command, input=json.dumps(job), stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return report


def table(sides: dict[str, list[dict[str, Any]]], arguments: argparse.Namespace) -> str:
    """The figures in Markdown."""
    bare, kept = (sides[name] for name in SIDES)
    setting = (
        "16 prompts x 8 completions of at most 64 tokens, tiny policy, a checkpoint every 25 steps, SQLite; "
        f"{arguments.threads} thread, {platform.machine()}, Python {platform.python_version()}; "
        f"{arguments.rounds} alternating rounds of {arguments.steps} steps, medians per step."
    )
    lines = [setting, "", f"| kept | {' | '.join(CLOCKS.values())} |", "|---|---|---|---|"]
    for name, rounds in sides.items():
        seconds = (f"{median(each[clock] for each in rounds):.4f} s" for clock in CLOCKS)
        lines.append(f"| {name} | {' | '.join(seconds)} |")
    ratios = (
        median(with_it[clock] / without[clock] for with_it, without in zip(kept, bare, strict=True))
        for clock in CLOCKS
    )
    lines.append(f"| ratio, median over rounds | {' | '.join(f'{ratio:.3f}' for ratio in ratios)} |")
    milliseconds = {
        name: f"{median(report['calls'][name] for report in kept) * 1e3:.3f} ms" for name in CALLS
    }
    told = ", ".join(f"{what} {milliseconds[name]}" for name, what in CALLS.items())
    shares = {name: f"{median(report[name] for report in kept):.1%}" for name in ("own_share", "share")}
    found = (
        f"Of the processor time of a run that is kept, {shares['share']} goes into keeping it, writer and "
        f"checkpoints included; {shares['own_share']} in the training thread itself: {told} (medians)."
    )
    return "\n".join([*lines, "", found])


if __name__ == "__main__":
    main()
