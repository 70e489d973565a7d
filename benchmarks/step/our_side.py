"""GRPO Lab's own trainer on the workload: sampling, scoring, learning and building the records of a step."""

import json
import sys
import threading
import time

import torch
import transformers
from workload import GROUP_SIZE, LEARNING_RATE, MAX_NEW_TOKENS, PROMPTS_PER_STEP, report

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
    torch.set_num_threads(job["threads"])
    listener = Listener()
    base = {
        "steps": job["steps"],
        "sampling": {
            "prompts_per_step": PROMPTS_PER_STEP,
            "group_size": GROUP_SIZE,
            "max_new_tokens": MAX_NEW_TOKENS,
        },
        "optimizer": {"lr": LEARNING_RATE},
        "evaluation": {"every": 0},
        "checkpointing": {"every": 0},
    }
    trainer = Trainer(
        resolve(base, {}, job["seed"]),
        listener,  # type: ignore[arg-type]
        settings=Settings(),
        checkpoints=Nothing(),  # type: ignore[arg-type]
        device="cpu",
        stopping=threading.Event(),
    )
    trainer.train()
    seconds = [after - before for before, after in zip(listener.ends, listener.ends[1:], strict=False)]
    report(seconds, listener.accuracy, {"transformers": transformers.__version__, "torch": torch.__version__})


if __name__ == "__main__":
    main()
