"""Timings of a step: seconds per part, hardware utilization, and memory."""

import resource
import time
from pathlib import Path

import torch
from transformers import PreTrainedModel

from backend.runs.workers.load import MachineLoad
from worker.policy.flops import ModelFlops, peak_flops
from worker.rollout.collector import CollectedGroups
from worker.training.step_metrics import Metrics
from worker.training.update_stats import UpdateStats

MIN_READING_SECONDS = 1.0
"""Minimum time between two readings of the machine's load, in seconds."""


def timing_metrics(collected: CollectedGroups, update_stats: UpdateStats, seconds: float) -> Metrics:
    """Return time/* and throughput/* of a step that took `seconds` in total."""
    totals = {
        "time/step_seconds": seconds,
        "time/sample_seconds": collected.sample_seconds,
        "time/score_seconds": collected.score_seconds,
        "time/update_seconds": update_stats.seconds
        - update_stats.reference_seconds
        - update_stats.critic_seconds,
        "throughput/tokens_per_second": collected.tokens / seconds,
    }
    optional_seconds = {
        "time/reference_seconds": update_stats.reference_seconds,
        "time/critic_seconds": update_stats.critic_seconds,
    }
    return totals | {name: part_seconds for name, part_seconds in optional_seconds.items() if part_seconds}


class Hardware:
    """Measures hardware utilization: operations of the model, and load of the machine."""

    def __init__(self, model: PreTrainedModel, *, epochs: int, state: Path, gpu: str) -> None:
        """Start measuring.

        `epochs` is the number of passes over a step's rollouts. `gpu` is the UUID of the GPU, "" on a CPU.
        """
        self._flops, self._epochs = ModelFlops(model), epochs
        self._peak = peak_flops(model.device, model.dtype)
        self._load = MachineLoad(state, gpu)
        self._read_at = time.monotonic()

    def utilization(self, collected: CollectedGroups, seconds: float) -> Metrics:
        """Return throughput/model_flops and throughput/mfu of sampling and learning.

        The reference policy and the critic are not included.
        """
        operations = 0.0
        for group in collected.sampled:
            prompts = [completion.prompt_tokens for completion in group.completions]
            lengths = [completion.prompt_tokens + len(completion) for completion in group.completions]
            operations += self._flops.forward(prompts[:1]) + self._flops.forward(lengths, prompts)
        for group in collected.training:
            lengths = [completion.prompt_tokens + len(completion) for completion in group.completions]
            operations += self._epochs * self._flops.learn(lengths)
        rate = operations / seconds
        metrics = {"throughput/model_flops": rate}
        return metrics | ({"throughput/mfu": rate / self._peak} if self._peak else {})

    def machine(self) -> Metrics:
        """Return machine/*, the load since the last reading, or nothing if that was less than a second
        ago.
        """
        now = time.monotonic()
        if now - self._read_at < MIN_READING_SECONDS:
            return {}
        self._read_at = now
        return {
            f"machine/{name}": value
            for name, value in self._load.read().items()
            if not name.endswith("_total_bytes")
        }

    def close(self) -> None:
        """Stop monitoring the GPU."""
        self._load.close()


def peak_bytes(device: torch.device) -> float:
    """Return the peak memory in bytes, of the GPU if there is one, else of the process."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
