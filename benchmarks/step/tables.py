"""Format the measurements of a step in Markdown."""

import argparse
import platform
from statistics import median
from typing import Any

import torch

from benchmarks.step.workload import Workload


def table(
    sides: dict[str, list[dict[str, Any]]], work: Workload, policy: str, arguments: argparse.Namespace
) -> str:
    """Return the figures in Markdown."""
    setting = (
        f"{work.prompts_per_step} prompts x {work.group_size} completions of at most {work.max_new_tokens} "
        f"tokens, {policy}, learning rate {work.learning_rate:g}; {arguments.threads} threads, "
        f"{platform.machine()} with {torch.backends.cpu.get_cpu_capability()}, Python "
        f"{platform.python_version()}; {arguments.rounds} alternating rounds of "
        f"{work.steps - work.warm_up_steps} counted steps."
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
