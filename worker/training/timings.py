"""Timings of a step: seconds of its parts, and memory."""

import resource

import torch

from worker.rollout.collector import Collected
from worker.training.step_metrics import Metrics
from worker.training.update_stats import Learned


def timings(collected: Collected, learned: Learned, seconds: float) -> Metrics:
    """time/* and throughput/* of a step that took `seconds` in all."""
    whole = {
        "time/step_seconds": seconds,
        "time/sample_seconds": collected.sample_seconds,
        "time/score_seconds": collected.score_seconds,
        "time/update_seconds": learned.seconds - learned.reference_seconds - learned.critic_seconds,
        "throughput/tokens_per_second": collected.tokens / seconds,
    }
    parts = {
        "time/reference_seconds": learned.reference_seconds,
        "time/critic_seconds": learned.critic_seconds,
    }
    return whole | {name: taken for name, taken in parts.items() if taken}


def peak_bytes(device: torch.device) -> float:
    """Largest memory so far: of the GPU on a GPU, else of the process."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
