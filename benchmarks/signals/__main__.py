"""The cost of the metrics that are logged for diagnosis: their share of a training step.

    python -m benchmarks.signals

Each function that computes them is timed inside a run of the tiny policy, on one thread, in processor time.
Writes results.md beside this file; `make docs` brings it into docs/.
"""

import argparse
import platform
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from backend.base.settings import Settings
from backend.config.merge import resolve
from benchmarks.common.nothing import Nothing
from worker.objective import diagnostics
from worker.policy.weight_sample import WeightSample
from worker.recording.records import StepRecord
from worker.training import learner, step_metrics, step_records
from worker.training.learner import Learner
from worker.training.online_diagnosis import OnlineDiagnosis
from worker.training.trainer import Trainer

HERE = Path(__file__).parent
WARM_UP = 3
TIMED: dict[str, list[tuple[Any, str]]] = {
    "`policy/lift_*`": [(Learner, "_lift")],
    "`text/*`": [(step_metrics, "text_metrics")],
    "`optim/kl_share`": [(diagnostics, "kl_share")],
    "`policy/covariance`": [(diagnostics, "covariance_terms")],
    "`optim/update_norm`": [(WeightSample, "__init__"), (WeightSample, "moved")],
    "`reward/unearned_share`": [(step_metrics, "_unearned_metrics")],
    "`groups/expected_useful`": [(step_metrics, "expected_useful")],
    "tokens' parts of the loss, recorded": [
        (diagnostics, "gradients"),
        (diagnostics, "contributions"),
        (learner, "keep_tokens"),
        (step_records, "_shared_out"),
    ],
    "the diagnosis, every 10 steps": [(OnlineDiagnosis, "take")],
}

METRICS = [name for name in TIMED if name.startswith("`")]
"""Those that are logged for the diagnosis alone."""


class Clock(Nothing):
    """Seconds of each timed function in each step, and of the step."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self.steps: list[dict[str, float]] = []
        self.begun = 0.0

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its processor time counted."""

        def wrapped(*arguments: Any, **named: Any) -> Any:
            started = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self.spent[name] += time.thread_time() - started

        return wrapped

    def begin(self, _step: int | None, /) -> None:
        self.begun = time.thread_time()

    def record_step(self, _record: StepRecord) -> None:
        now = time.thread_time()
        self.steps.append({**self.spent, "step": now - self.begun})
        self.spent.clear()
        self.begun = time.thread_time()


def main() -> None:
    parser = argparse.ArgumentParser(description="cost of the metrics that are logged for diagnosis")
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    clock = Clock()
    for name, places in TIMED.items():
        for owner, attribute in places:
            setattr(owner, attribute, clock.timed(name, getattr(owner, attribute)))
    config = {
        "preset": "grpo",
        "steps": arguments.steps + WARM_UP,
        "objective": {"kl": {"type": "k3", "coef": 0.01}},
        "evaluation": {"every": 0},
        "checkpointing": {"every": 0},
    }
    resolved = resolve(config, {}, 0)
    Trainer(
        resolved,
        clock,  # type: ignore[arg-type]
        settings=Settings(),
        checkpoints=Nothing(),  # type: ignore[arg-type]
        device="cpu",
        stopping=threading.Event(),
    ).train()
    sampling = resolved.sampling
    text = table(
        clock.steps[WARM_UP:],
        f"{sampling.prompts_per_step} prompts x {sampling.group_size} completions of at most "
        f"{sampling.max_new_tokens} tokens, tiny policy, KL term; one thread, {platform.machine()}, torch "
        f"{torch.__version__}; means over {arguments.steps} steps.",
    )
    print(text)
    (HERE / "results.md").write_text(text + "\n", encoding="utf-8")


def table(steps: list[dict[str, float]], setting: str) -> str:
    """The figures in Markdown."""
    step = fmean(each["step"] for each in steps)
    lines = [setting, "", "| metric | processor time per step | of a step |", "|---|---|---|"]
    for name in TIMED:
        taken = fmean(each.get(name, 0.0) for each in steps)
        lines.append(f"| {name} | {taken * 1e3:.3f} ms | {taken / step:.2%} |")
    alone = fmean(sum(each.get(name, 0.0) for name in METRICS) for each in steps)
    lines.append(f"| these metrics alone | {alone * 1e3:.3f} ms | {alone / step:.2%} |")
    together = fmean(sum(taken for name, taken in each.items() if name != "step") for each in steps)
    lines.append(f"| together | {together * 1e3:.2f} ms of {step * 1e3:.0f} ms | {together / step:.2%} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
