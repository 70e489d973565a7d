"""Fixtures for steps of a run whose records stay in memory."""

import threading
from typing import Any

import pytest

from backend.config.merge import resolve
from benchmarks.common.nothing import NullRecorder
from worker.recording.records import StepRecord
from worker.training.trainer import Trainer


class MemoryRecorder(NullRecorder):
    """A recorder that keeps the records of steps in memory."""

    def __init__(self) -> None:
        self.records: list[StepRecord] = []

    def record_step(self, record: StepRecord) -> None:
        self.records.append(record)


@pytest.fixture
def train_steps(settings):
    """A function that returns the records of a config's training steps."""

    def train_config(changes: dict[str, Any]) -> list[StepRecord]:
        config = resolve(
            {
                "steps": 2,
                "sampling": {"max_new_tokens": 24, "prompts_per_step": 4, "group_size": 4},
                "evaluation": {"every": 0},
                "checkpointing": {"every": 0},
            }
            | changes
        )
        recorder: Any = MemoryRecorder()
        Trainer(
            config,
            recorder,
            settings=settings,
            checkpoints=NullRecorder(),  # type: ignore[arg-type]
            device="cpu",
            stopping=threading.Event(),
        ).train()
        return [record for record in recorder.records if record.step]

    return train_config
