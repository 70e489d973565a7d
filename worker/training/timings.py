"""Timings of a step: seconds of its parts, use of the hardware, and memory."""

import resource
import time
from pathlib import Path

import torch
from transformers import PreTrainedModel

from backend.runs.workers.load import MachineLoad
from worker.policy.flops import ModelFlops, peak_flops
from worker.rollout.collector import Collected
from worker.training.step_metrics import Metrics
from worker.training.update_stats import UpdateStats

READING_SECONDS = 1.0
"""Least time between two readings of the machine."""


def timings(collected: Collected, update_stats: UpdateStats, seconds: float) -> Metrics:
    """time/* and throughput/* of a step that took `seconds` in all."""
    totals = {
        "time/step_seconds": seconds,
        "time/sample_seconds": collected.sample_seconds,
        "time/score_seconds": collected.score_seconds,
        "time/update_seconds": update_stats.seconds
        - update_stats.reference_seconds
        - update_stats.critic_seconds,
        "throughput/tokens_per_second": collected.tokens / seconds,
    }
    parts = {
        "time/reference_seconds": update_stats.reference_seconds,
        "time/critic_seconds": update_stats.critic_seconds,
    }
    return totals | {name: taken for name, taken in parts.items() if taken}


class Hardware:
    """Use of the hardware: operations of the model, and load of the machine."""

    def __init__(self, model: PreTrainedModel, *, epochs: int, state: Path, gpu: str) -> None:
        """`epochs` are the passes over a step's rollouts, `gpu` is the UUID of the GPU, "" on a CPU."""
        self._flops, self._epochs = ModelFlops(model), epochs
        self._peak = peak_flops(model.device, model.dtype)
        self._load = MachineLoad(state, gpu)
        self._read_at = time.monotonic()

    def utilization(self, collected: Collected, seconds: float) -> Metrics:
        """throughput/model_flops and throughput/mfu: sampling and learning; no reference, no critic."""
        needed = 0.0
        for group in collected.sampled:
            prompts = [completion.prompt_tokens for completion in group.completions]
            lengths = [completion.prompt_tokens + len(completion) for completion in group.completions]
            needed += self._flops.forward(prompts[:1]) + self._flops.forward(lengths, prompts)
        for group in collected.training:
            lengths = [completion.prompt_tokens + len(completion) for completion in group.completions]
            needed += self._epochs * self._flops.learn(lengths)
        rate = needed / seconds
        metrics = {"throughput/model_flops": rate}
        return metrics | ({"throughput/mfu": rate / self._peak} if self._peak else {})

    def machine(self) -> Metrics:
        """machine/*: the load since the last reading; nothing when that was less than a second ago."""
        now = time.monotonic()
        if now - self._read_at < READING_SECONDS:
            return {}
        self._read_at = now
        return {
            f"machine/{name}": value
            for name, value in self._load.read().items()
            if not name.endswith("_total_bytes")
        }

    def close(self) -> None:
        """Stop looking at the GPU."""
        self._load.close()


def peak_bytes(device: torch.device) -> float:
    """Largest memory so far: of the GPU on a GPU, else of the process."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
