"""A training step against TRL's, on the same policy, prompts, batch and machine, in alternating rounds.

    python -m benchmarks.step

TRL lives in an environment of its own, `.venv-trl`, which is made on the first run. Writes results.md beside
this file; `make docs` brings it into docs/.
"""

import argparse
import os
import platform
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peers import python_of_trl, run
from benchmarks.step.workload import (
    GROUP_SIZE,
    LEARNING_RATE,
    MAX_NEW_TOKENS,
    PROMPTS_PER_STEP,
    WARM_UP_STEPS,
)
from worker.problems.sums import Sums

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description="seconds per training step, GRPO Lab against TRL")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    problem = Sums(seed=0)
    asked = [problem.sample(index, "train") for index in range(PROMPTS_PER_STEP * arguments.steps)]
    prompts = [{"prompt": prompt.text, "answer": prompt.answer} for prompt in asked]
    job = {"steps": arguments.steps, "threads": arguments.threads, "seed": 0, "prompts": prompts}
    sides: dict[str, list[dict[str, Any]]] = {"TRL": [], "GRPO Lab": []}
    for number in range(arguments.rounds):
        sides["TRL"].append(run(python_of_trl(), HERE / "trl_side.py", job))
        sides["GRPO Lab"].append(run(sys.executable, HERE / "our_side.py", job))
        times = ", ".join(f"{name} {rounds[-1]['median_seconds']:.3f} s" for name, rounds in sides.items())
        print(f"round {number + 1}: {times}", flush=True)
    text = table(sides, arguments)
    print(f"\n{text}")
    (HERE / "results.md").write_text(text + "\n", encoding="utf-8")


def table(sides: dict[str, list[dict[str, Any]]], arguments: argparse.Namespace) -> str:
    """The figures in Markdown."""
    setting = (
        f"{PROMPTS_PER_STEP} prompts x {GROUP_SIZE} completions of at most {MAX_NEW_TOKENS} tokens, "
        f"tiny policy, learning rate {LEARNING_RATE:g}; {arguments.threads} threads, {platform.machine()}, "
        f"Python {platform.python_version()}; {arguments.rounds} alternating rounds of "
        f"{arguments.steps - WARM_UP_STEPS} counted steps."
    )
    head = ["| trainer | versions | median step | fastest step | of TRL's |", "|---|---|---|---|---|"]
    lines = [setting, "", *head]
    baseline = median(figures["median_seconds"] for figures in sides["TRL"])
    for name, rounds in sides.items():
        typical = median(figures["median_seconds"] for figures in rounds)
        fastest = min(figures["fastest_seconds"] for figures in rounds)
        versions = ", ".join(f"{package} {version}" for package, version in rounds[0]["versions"].items())
        lines.append(
            f"| {name} | {versions} | {typical:.3f} s | {fastest:.3f} s | {typical / baseline:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
