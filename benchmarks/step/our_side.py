"""GRPO Lab's own trainer on the workload: sampling, scoring, learning and building the records of a step."""

import json
import sys
import threading
import time

import torch
import transformers
from workload import Workload, report

from backend.config.merge import resolve
from backend.settings import Settings
from benchmarks.nothing import Nothing
from worker.recording.records import StepRecord
from worker.training.trainer import Trainer


class Listener(Nothing):
    """Counts steps, stores nothing."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.accuracy: list[float] = []

    def begin(self, _step: int | None, /) -> None:
        self.ends.append(time.perf_counter())

    def record_step(self, record: StepRecord) -> None:
        self.ends.append(time.perf_counter())
        self.accuracy.append(record.metrics["reward/accuracy"])


def main() -> None:
    job = json.load(sys.stdin)
    work = Workload(**job["workload"])
    torch.set_num_threads(job["threads"])
    listener = Listener()
    base = {
        "policy": {"name": work.path.name},
        "steps": work.steps,
        "sampling": {
            "prompts_per_step": work.prompts_per_step,
            "group_size": work.group_size,
            "max_new_tokens": work.max_new_tokens,
        },
        "optimizer": {"lr": work.learning_rate},
        "evaluation": {"every": 0},
        "checkpointing": {"every": 0},
    }
    trainer = Trainer(
        resolve(base, {}, job["seed"]),
        listener,  # type: ignore[arg-type]
        settings=Settings(models_dir=work.path.parent),
        checkpoints=Nothing(),  # type: ignore[arg-type]
        device="cpu",
        stopping=threading.Event(),
    )
    trainer.train()
    seconds = [after - before for before, after in zip(listener.ends, listener.ends[1:], strict=False)]
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    report(work, seconds, listener.accuracy, versions)


if __name__ == "__main__":
    main()
