"""What was measured of a step, in Markdown."""

import argparse
import platform
from statistics import median
from typing import Any

import torch

from benchmarks.step.workload import Workload


def gpu_table(
    sides: dict[str, list[dict[str, Any]]], work: Workload, policy: str, arguments: argparse.Namespace
) -> str:
    """The figures of a GPU in Markdown, with the parts of a step and its share of the GPU's peak."""
    our_figures = {
        name: median(figures[name] for figures in sides["GRPO Lab"])
        for name in sides["GRPO Lab"][0]
        if name.startswith(("time/", "throughput/"))
    }
    memory = ", ".join(
        f"{name} {max(figures['peak_bytes'] for figures in rounds) / 1e9:.1f} GB"
        for name, rounds in sides.items()
    )
    about = (
        f"Of a step of GRPO Lab, sampling took {our_figures['time/sample_seconds']:.3f} s and learning "
        f"{our_figures['time/update_seconds']:.3f} s; it used {our_figures.get('throughput/mfu', 0):.1%} "
        f"of the GPU's peak. Peak memory: {memory}. TRL keeps weights and moments in bfloat16, GRPO Lab "
        "master weights and moments in float32."
    )
    threads, gpu = f"{arguments.threads} threads, ", f"{torch.cuda.get_device_name()}, "
    return f"{table(sides, work, policy, arguments).replace(threads, gpu, 1)}\n\n{about}"


def table(
    sides: dict[str, list[dict[str, Any]]], work: Workload, policy: str, arguments: argparse.Namespace
) -> str:
    """The figures in Markdown."""
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
