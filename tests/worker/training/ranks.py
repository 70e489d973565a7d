"""Measure how far a run on several ranks differs from the same run in one process.

    python -m tests.worker.training.ranks --ranks 1 2 4 --steps 20

The output has a row for each objective: the largest difference of any step's gradient norm, divided by
that norm in one process; the largest difference of any other metric and of any final weight; and how far
the weights have moved. The row of 1 rank is a yardstick: one process with passes of fewer completions,
which also sums in another order."""

import argparse
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backend.base.settings import Settings
from backend.config.merge import merge, resolve
from benchmarks.common.nothing import NullRecorder
from tests.worker.training import wide
from worker.recording.records import StepRecord
from worker.training.companions import FOLLOWER_COMMAND, joined_ranks
from worker.training.trainer import Trainer

LORA_CONFIG = {"policy": {"adapter": {"type": "lora", "rank": 8}}}

MIXTURE_CONFIG = {"policy": {"name": "tiny_moe"}}

EXPERT_TARGETS = "all_linear,experts"
"""Layers of a mixture that get an adapter."""

CASES: dict[str, dict[str, Any]] = {
    "GRPO": {"preset": "grpo"},
    "DAPO": {"preset": "dapo", "filters": {"groups": {"type": "zero_variance"}}},
    "GSPO": {"preset": "gspo"},
    "PPO with a critic": {"preset": "ppo"},
    "GRPO, LoRA": {"preset": "grpo", **LORA_CONFIG},
    "PPO with a critic, LoRA": {"preset": "ppo", **LORA_CONFIG},
    "GRPO, mixture": {"preset": "grpo", **MIXTURE_CONFIG},
    "RSPO, mixture": {"preset": "rspo", **MIXTURE_CONFIG},
    "RSPO, mixture, replay": {"preset": "rspo", **MIXTURE_CONFIG, "sampling": {"routing_replay": True}},
    "GRPO, mixture, LoRA": {
        "preset": "grpo",
        "policy": {
            **MIXTURE_CONFIG["policy"],
            "adapter": {**LORA_CONFIG["policy"]["adapter"], "targets": EXPERT_TARGETS},
        },
    },
}

SMALL_CONFIG: dict[str, Any] = {
    "sampling": {"max_new_tokens": 64, "prompts_per_step": 4, "group_size": 4},
    "rewards": [{"name": "correctness"}, {"name": "length"}],
    "evaluation": {"every": 0},
    "checkpointing": {"every": 0},
    "optimizer": {"lr": 1e-4, "eps": 1e-5},
}
"""Untrained weights are seldom right, but some completions are shorter than others. With the usual eps of
1e-8, AdamW takes a full step even for a gradient that is only rounding error."""

MACHINE_PREFIXES = ("time/", "memory/", "machine/", "gpu/", "throughput/")
"""Prefixes of metrics that do not describe the training."""


MISMATCH_PREFIX = "mismatch/"
"""Prefix of metrics that compare learner and sampler, and thus measure the rounding in which ranks differ."""

NORM_METRIC = "optim/grad_norm"
"""Metric that is compared relative to its value."""

SHARE_SUFFIX = "_frac"
"""Suffix of metrics that count tokens beyond a limit, which rounding may move across it."""


FEWER_COMPLETIONS = {"resources": {"microbatch_completions": 3}}
"""Config for passes of fewer completions."""


class Trained(NamedTuple):
    """The results of a run."""

    steps: list[dict[str, float]]
    weights_before: dict[str, Tensor]
    weights_after: dict[str, Tensor]


class Difference(NamedTuple):
    """The differences between two runs."""

    norm: float
    """Largest difference of a gradient norm, divided by the norm in the first run."""
    metric: float
    """Largest difference of any other metric."""
    name: str
    """The metric that differs most."""
    weight: float
    weight_change: float
    """Largest change of any weight in the first run."""
    mismatch: float
    """Largest difference of a mismatch metric."""


class MemoryRecorder(NullRecorder):
    """A recorder that keeps the records of steps in memory."""

    def __init__(self) -> None:
        self.records: list[StepRecord] = []

    def record_step(self, record: StepRecord) -> None:
        """Store the record."""
        self.records.append(record)


def train(
    case: Mapping[str, Any],
    *,
    ranks: int,
    steps: int,
    checkpoints: Any = None,
    device: str = "cpu",
    gpus: Sequence[str] = (),
    argv: tuple[str, ...] = FOLLOWER_COMMAND,
) -> Trained:
    """Train a case on this number of ranks, of which this process is the first.

    `gpus` are the UUIDs of their GPUs, and `argv` is the command of the other ranks."""
    config = resolve(
        merge(merge(SMALL_CONFIG, dict(case)), {"steps": steps, "resources": {"devices": ranks}})
    )
    recorder: Any = MemoryRecorder()
    with joined_ranks(config, device=device, threads=ranks, gpus=gpus, argv=argv) as joined_group:
        trainer = Trainer(
            config,
            recorder,
            settings=Settings(),
            checkpoints=NullRecorder() if checkpoints is None else checkpoints,  # type: ignore[arg-type]
            device=device,
            stopping=threading.Event(),
            ranks=joined_group,
        )
        weights_before = copy_weights(trainer)
        trainer.train()
    return Trained(
        [dict(record.metrics) for record in recorder.records if record.step],
        weights_before,
        copy_weights(trainer),
    )


def copy_weights(trainer: Trainer) -> dict[str, Tensor]:
    """Return copies of the trainable weights, including those of the critic."""
    critic = trainer.learner.critic_step
    models = [trainer.policy.model, *([critic.critic.model] if critic else [])]
    return {
        f"{number}/{name}": weight.detach().clone()
        for number, model in enumerate(models)
        for name, weight in model.named_parameters()
        if weight.requires_grad
    }


def compare_runs(first_run: Trained, second_run: Trained) -> Difference:
    """Compare every metric of every step, and the weights."""
    differences = {
        name: max(
            abs(first_step[name] - second_step[name])
            for first_step, second_step in zip(first_run.steps, second_run.steps, strict=True)
        )
        for name in first_run.steps[0]
        if not name.startswith(MACHINE_PREFIXES)
        and all(name in step for step in (*first_run.steps, *second_run.steps))
    }
    mismatch = max(difference for name, difference in differences.items() if name.startswith(MISMATCH_PREFIX))
    differences = {
        name: difference
        for name, difference in differences.items()
        if not (name.startswith(MISMATCH_PREFIX) or name.endswith(SHARE_SUFFIX) or name == NORM_METRIC)
    }
    worst = max(differences, key=lambda name: differences[name])
    return Difference(
        max(
            abs(first_step[NORM_METRIC] - second_step[NORM_METRIC]) / first_step[NORM_METRIC]
            for first_step, second_step in zip(first_run.steps, second_run.steps, strict=True)
            if first_step.get(NORM_METRIC)
        ),
        differences[worst],
        worst,
        _largest(first_run.weights_after, second_run.weights_after),
        _largest(first_run.weights_before, first_run.weights_after),
        mismatch,
    )


def _largest(first_weights: Mapping[str, Tensor], second_weights: Mapping[str, Tensor]) -> float:
    return max(float((first_weights[name] - second_weights[name]).abs().max()) for name in first_weights)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument(
        "--wide", action="store_true", help="in float64, where rounding is too small to matter"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    argv = FOLLOWER_COMMAND
    if options.wide:
        wide.widen()
        argv = wide.FOLLOWER_COMMAND
    precision = "float64" if options.wide else "float32"
    print(f"torch {torch.__version__}, {options.steps} steps, {precision}", flush=True)
    print("| objective | ranks | gradient norm | metrics | worst metric | mismatch/* | weights | moved |")
    for name in options.cases:
        single_rank = train(CASES[name], ranks=1, steps=options.steps)
        for ranks in options.ranks:
            case = CASES[name] if ranks > 1 else merge(CASES[name], FEWER_COMPLETIONS)
            differences = compare_runs(single_rank, train(case, ranks=ranks, steps=options.steps, argv=argv))
            metrics = f"{differences.norm:.1e} | {differences.metric:.1e} | `{differences.name}`"
            weights = f"{differences.weight:.1e} | {differences.weight_change:.1e}"
            print(f"| {name} | {ranks} | {metrics} | {differences.mismatch:.1e} | {weights} |", flush=True)


if __name__ == "__main__":
    main()
