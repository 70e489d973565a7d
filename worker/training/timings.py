"""Timings of a step: seconds of its parts, and memory."""

import resource

import torch

from worker.rollout.collector import Collected
from worker.training.step_metrics import Metrics
from worker.training.update_stats import UpdateStats


def timings(collected: Collected, update_stats: UpdateStats, seconds: float) -> Metrics:
    """time/* and throughput/* of a step that took `seconds` in all."""
    whole = {
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
    return whole | {name: taken for name, taken in parts.items() if taken}


def peak_bytes(device: torch.device) -> float:
    """Largest memory so far: of the GPU on a GPU, else of the process."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
