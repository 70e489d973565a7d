"""Run GRPO Lab's trainer on the workload: sample, score, learn and build the records of a step."""

import json
import sys
import threading
import time
from statistics import median

import torch
import transformers
from workload import Workload, report

from backend.base.settings import Settings
from backend.config.merge import resolve
from benchmarks.common.nothing import NullRecorder
from worker.recording.records import StepRecord
from worker.training.trainer import Trainer

FIGURE_METRICS = (
    "time/sample_seconds",
    "time/update_seconds",
    "time/score_seconds",
    "throughput/mfu",
    "length/mean",
)


class Listener(NullRecorder):
    """A recorder that counts steps and stores nothing."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.accuracy: list[float] = []
        self.parts: dict[str, list[float]] = {}

    def begin(self, _step: int | None, /) -> None:
        self.ends.append(time.perf_counter())

    def record_step(self, record: StepRecord) -> None:
        self.ends.append(time.perf_counter())
        self.accuracy.append(record.metrics["reward/accuracy"])
        for name in FIGURE_METRICS:
            if name in record.metrics:
                self.parts.setdefault(name, []).append(record.metrics[name])


def make_trainer(workload: Workload, listener: Listener, seed: int) -> Trainer:
    """Return the trainer of a workload, which records to the listener and saves nothing."""
    base = {
        "policy": {
            "name": workload.path.name,
            "dtype": "bfloat16" if workload.device == "cuda" else "float32",
        },
        "steps": workload.steps,
        "sampling": {
            "prompts_per_step": workload.prompts_per_step,
            "group_size": workload.group_size,
            "max_new_tokens": workload.max_new_tokens,
        },
        "optimizer": {"lr": workload.learning_rate},
        "evaluation": {"every": 0},
        "checkpointing": {"every": 0},
    }
    return Trainer(
        resolve(base, {}, seed),
        listener,  # type: ignore[arg-type]
        settings=Settings(models_dir=workload.path.parent),
        checkpoints=NullRecorder(),  # type: ignore[arg-type]
        device=workload.device,
        stopping=threading.Event(),
    )


def main() -> None:
    job = json.load(sys.stdin)
    workload = Workload(**job["workload"])
    torch.set_num_threads(job["threads"])
    listener = Listener()
    trainer = make_trainer(workload, listener, job["seed"])
    trainer.train()
    seconds = [
        end - previous_end for previous_end, end in zip(listener.ends, listener.ends[1:], strict=False)
    ]
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    extra_figures = {
        name: median(values[workload.warm_up_steps :]) for name, values in listener.parts.items()
    }
    if workload.device == "cuda":
        extra_figures["peak_bytes"] = torch.cuda.max_memory_allocated()
    report(workload, seconds, listener.accuracy, versions, extra_figures)


if __name__ == "__main__":
    main()
