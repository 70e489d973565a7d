"""The workload of both sides of the step benchmark: policy, prompts, sizes. Imports neither of them."""

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

POLICY = Path(__file__).parents[2] / "worker" / "policy" / "tiny"
PROMPTS_PER_STEP, GROUP_SIZE, MAX_NEW_TOKENS = 16, 8, 64
LEARNING_RATE = 3e-4
WARM_UP_STEPS = 5
"""Steps that are run but not counted."""

BOX = re.compile(r"\\boxed\{([^{}]*)\}")


def correctness(text: str, answer: str) -> float:
    """1 when the last box holds the answer."""
    boxes = BOX.findall(text)
    return float(bool(boxes) and boxes[-1].strip() == answer)


def report(step_seconds: Sequence[float], accuracy: Sequence[float], versions: dict[str, str]) -> None:
    """One line of JSON for the parent process."""
    counted = step_seconds[WARM_UP_STEPS:]
    figures = {"median_seconds": median(counted), "fastest_seconds": min(counted), "steps": len(counted)}
    print(
        json.dumps(
            figures
            | {"last_accuracy": accuracy[-1], "cpu_seconds": time.process_time()}
            | {"versions": versions}
        )
    )
