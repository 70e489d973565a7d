"""The workloads of both sides of the step benchmark: policy, prompts and sizes. It imports neither side."""

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple


class Workload(NamedTuple):
    """The work of both trainers."""

    policy: str
    """Directory of the policy."""
    prompts_per_step: int = 16
    group_size: int = 8
    max_new_tokens: int = 64
    learning_rate: float = 3e-4
    warm_up_steps: int = 5
    """Number of steps that are run but not counted."""
    steps: int = 30
    device: str = "cpu"
    """Device and precision: cpu in float32, or cuda in bfloat16."""

    @property
    def path(self) -> Path:
        """Directory of the policy."""
        return Path(self.policy)


TINY_WORKLOAD = Workload(str(Path(__file__).parents[2] / "worker" / "policy" / "tiny"))

BOX_PATTERN = re.compile(r"\\boxed\{([^{}]*)\}")


def correctness(text: str, answer: str) -> float:
    """Return 1 if the last box contains the answer, else 0."""
    boxes = BOX_PATTERN.findall(text)
    return float(bool(boxes) and boxes[-1].strip() == answer)


def report(
    workload: Workload,
    step_seconds: Sequence[float],
    accuracy: Sequence[float],
    versions: dict[str, str],
    extra_figures: dict[str, float] | None = None,
) -> None:
    """Print one line of JSON for the parent process."""
    counted_seconds = step_seconds[workload.warm_up_steps :]
    figures = {
        "median_seconds": median(counted_seconds),
        "fastest_seconds": min(counted_seconds),
        "steps": len(counted_seconds),
    }
    figures |= extra_figures or {}
    print(
        json.dumps(
            figures
            | {"last_accuracy": accuracy[-1], "cpu_seconds": time.process_time()}
            | {"versions": versions}
        )
    )
