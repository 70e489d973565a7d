"""Format the measurements of a step in Markdown."""

import argparse
import platform
from statistics import median
from typing import Any

import torch

from benchmarks.step.workload import Workload


def table(
    figures_by_trainer: dict[str, list[dict[str, Any]]],
    workload: Workload,
    policy: str,
    arguments: argparse.Namespace,
) -> str:
    """Return the figures in Markdown."""
    setting = (
        f"{workload.prompts_per_step} prompts x {workload.group_size} completions of at most "
        f"{workload.max_new_tokens} tokens, {policy}, learning rate {workload.learning_rate:g}; "
        f"{arguments.threads} threads, "
        f"{platform.machine()} with {torch.backends.cpu.get_cpu_capability()}, Python "
        f"{platform.python_version()}; {arguments.rounds} alternating rounds of "
        f"{workload.steps - workload.warm_up_steps} counted steps."
    )
    head = ["| trainer | versions | median step | fastest step | of TRL's |", "|---|---|---|---|---|"]
    lines = [setting, "", *head]
    baseline = median(figures["median_seconds"] for figures in figures_by_trainer["TRL"])
    for name, rounds in figures_by_trainer.items():
        typical = median(figures["median_seconds"] for figures in rounds)
        fastest = min(figures["fastest_seconds"] for figures in rounds)
        versions = ", ".join(f"{package} {version}" for package, version in rounds[0]["versions"].items())
        lines.append(
            f"| {name} | {versions} | {typical:.3f} s | {fastest:.3f} s | {typical / baseline:.2f} |"
        )
    return "\n".join(lines)
