"""The cost of keeping a run: one run that is kept and not kept by turns, blocks of steps in pairs.

    python -m benchmarks.recording

Both sides of a pair are the same work in the same process, a few seconds apart, in alternating order.
Writes results.md beside this file.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from statistics import median, quantiles
from typing import Any

HERE = Path(__file__).parent

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
    parser.add_argument(
        "--block", type=int, default=25, help="steps of a block, which ends with a checkpoint"
    )
    parser.add_argument("--pairs", type=int, default=30, help="of blocks")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--directory", default=None, help="where the run is kept (default: a temporary one)")
    arguments = parser.parse_args()
    text = table(one_run(arguments), arguments)
    print(text)
    (HERE / "results.md").write_text(text + "\n", encoding="utf-8")


def one_run(arguments: argparse.Namespace) -> dict[str, Any]:
    """The report of the run, in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.recording.one_run"]
    job = json.dumps(vars(arguments))
    done = subprocess.run(command, input=job, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return report


def table(report: dict[str, Any], arguments: argparse.Namespace) -> str:
    """The figures in Markdown."""
    sides = {
        "nothing kept": [each for each in report["blocks"] if not each["is_kept"]],
        "recording and checkpoints": [each for each in report["blocks"] if each["is_kept"]],
    }
    bare, kept = sides.values()
    setting = (
        "16 prompts x 8 completions of at most 64 tokens, tiny policy, SQLite; "
        f"{arguments.threads} thread, {platform.machine()}, Python {platform.python_version()}; "
        f"{arguments.pairs} pairs of {arguments.block} steps with a checkpoint each; seconds a step, medians."
    )
    lines = [setting, "", f"| kept | {' | '.join(CLOCKS.values())} |", "|---|---|---|---|"]
    for name, blocks in sides.items():
        cells = (f"{median(each[clock] for each in blocks) / arguments.block:.4f} s" for clock in CLOCKS)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    ratios = {
        clock: [with_it[clock] / without[clock] for with_it, without in zip(kept, bare, strict=True)]
        for clock in CLOCKS
    }
    cells = (_spread(each) for each in ratios.values())
    lines.append(f"| ratio within a pair, median (quartiles) | {' | '.join(cells)} |")
    told = ", ".join(f"{what} {median(report['calls'][name]) * 1e3:.3f} ms" for name, what in CALLS.items())
    own = sum(map(sum, report["calls"].values())) / len(report["calls"]["records"])
    writer = median(each["writer"] for each in kept) / arguments.block
    found = (
        f"Of that the training thread does {own * 1e3:.1f} ms a step itself: {told} (medians of processor "
        f"time). The writer's thread takes {writer * 1e3:.1f} ms a step beside it."
    )
    return "\n".join([*lines, "", found])


def _spread(ratios: list[float]) -> str:
    low, middle, high = quantiles(ratios, method="inclusive")
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
