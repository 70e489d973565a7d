"""What grows: the sizes of each dimension, and the processor time of a step at one of them."""

import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from sqlalchemy import insert
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config

from backend.base.settings import Settings
from backend.config.merge import resolve
from backend.metrics.store import write_points
from backend.rollouts.store import pack_groups, write_groups
from backend.storage.engine import Sessions, open_engine, open_sessions
from backend.storage.migrate import upgrade
from backend.storage.models import Attempt, Run
from benchmarks.common.nothing import Nothing
from benchmarks.step.workload import TINY
from benchmarks.storage.rows import attempt_row, run_row
from worker.recording.records import CompletionRecord, GroupRecord, StepRecord
from worker.training.trainer import Trainer

VOCABULARY = 8_192
"""So large that random weights hardly ever end a completion: all run into the cap."""

WARM_UP = 2
TOKENS = 32
"""Of each stored completion."""


class Dimension(NamedTuple):
    """A size that grows while the others stay."""

    title: str
    sizes: tuple[int, ...]
    measure: Callable[[int, int], float]
    """Median of the processor seconds of a step, from its size and the number of repetitions."""


class _Clock(Nothing):
    """Takes down the processor time of each step."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def begin(self, _step: int | None, /) -> None:
        self.ends.append(time.process_time())

    def record_step(self, _record: StepRecord) -> None:
        self.ends.append(time.process_time())


def _step(repeats: int, *, prompts: int = 4, group: int = 4, tokens: int = 64, layers: int = 2) -> float:
    """A training step of a policy with random weights."""
    torch.set_num_threads(1)
    sampling = {"prompts_per_step": prompts, "group_size": group, "max_new_tokens": tokens}
    base = {
        "policy": {"name": "random"}, "steps": WARM_UP + repeats, "sampling": sampling,
        "evaluation": {"every": 0}, "checkpointing": {"every": 0},
    }  # fmt: skip
    clock = _Clock()
    with tempfile.TemporaryDirectory() as models:
        _random_policy(Path(models) / "random", layers)
        trainer = Trainer(
            resolve(base, {}, 0),
            clock,  # type: ignore[arg-type]
            settings=Settings(models_dir=Path(models)),
            checkpoints=Nothing(),  # type: ignore[arg-type]
            device="cpu",
            stopping=threading.Event(),
        )
        trainer.train()
    return median(np.diff(clock.ends)[WARM_UP:])


def _random_policy(directory: Path, layers: int) -> None:
    tokenizer = AutoTokenizer.from_pretrained(TINY.policy)
    tokenizer.add_tokens([f"<w{number}>" for number in range(VOCABULARY - len(tokenizer))])
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=192, intermediate_size=576, num_hidden_layers=layers,
        num_attention_heads=6, num_key_value_heads=3, head_dim=32, max_position_embeddings=2048,
        tie_word_embeddings=True, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


@contextmanager
def _stored_run() -> Iterator[tuple[Sessions, str]]:
    """An empty SQLite database with one run."""
    with tempfile.TemporaryDirectory() as state:
        url = f"sqlite:///{state}/growth.db"
        upgrade(url)
        engine = open_engine(url)
        sessions = open_sessions(engine)
        with sessions.begin() as session:
            row = run_row(0, "growth", 1_000)
            session.execute(insert(Run), [row])
            session.execute(insert(Attempt), [attempt_row(row["id"])])
        yield sessions, row["id"]
        engine.dispose()


def _metrics(count: int, repeats: int) -> float:
    """Twenty steps with so many metrics, each step committed for itself."""
    with _stored_run() as (sessions, run):
        names = [f"growth/{number:04d}" for number in range(count)]
        found = []
        for number in range(WARM_UP + repeats):
            before = time.process_time()
            for step in range(number * 20, number * 20 + 20):
                with sessions.begin() as session:
                    write_points(session, run, 1, [(step, dict.fromkeys(names, step / 7))])
            found.append((time.process_time() - before) / 20)
        return median(found[WARM_UP:])


def _completions(count: int, repeats: int) -> float:
    """One step whose completions are all stored, with their tokens."""
    chance = random.Random(0)
    with _stored_run() as (sessions, run):
        found = []
        for step in range(WARM_UP + repeats):
            groups = [_group(index, chance) for index in range(count // 8)]
            before = time.process_time()
            packed = pack_groups(run, step, 1, groups)
            with sessions.begin() as session:
                write_groups(session, packed)
            found.append(time.process_time() - before)
        return median(found[WARM_UP:])


def _group(index: int, chance: random.Random) -> GroupRecord:
    return GroupRecord(
        kind="train", prompt_index=index, prompt_id=f"sums-{index}", problem="sums", domain="sums",
        prompt=f"{index}+1=?", answer=str(index + 1),
        completions=tuple(_completion(chance) for _ in range(8)),
    )  # fmt: skip


def _completion(chance: random.Random) -> CompletionRecord:
    text = "".join(chance.choices("0123456789+= ", k=TOKENS))
    values = np.array([chance.gauss(0, 1) for _ in text], np.float32)
    return CompletionRecord(
        text=text, token_strings=tuple(text), token_ids=np.arange(TOKENS), reward=1.0,
        rewards={"correctness": 1.0}, advantage=0.5, finish_reason="stop", correct=True, flags=(),
        arrays={"logprob": values, "entropy": values},
    )  # fmt: skip


DIMENSIONS = {
    "prompts": Dimension(
        "prompts a step, 4 completions of 64 tokens each", (4, 8, 16, 32), lambda n, r: _step(r, prompts=n)
    ),
    "group": Dimension(
        "completions a prompt, 4 prompts, 64 tokens", (4, 8, 16, 32), lambda n, r: _step(r, group=n)
    ),
    "length": Dimension(
        "tokens a completion, 4 x 4; attention grows with the square",
        (64, 128, 256, 512),
        lambda n, r: _step(r, tokens=n),
    ),
    "layers": Dimension(
        "layers of the policy, 1.2 M parameters in two", (2, 4, 8, 16), lambda n, r: _step(r, layers=n)
    ),
    "metrics": Dimension("metrics a step, stored in SQLite", (25, 50, 100, 200), _metrics),
    "completions": Dimension(
        "completions stored a step, 32 tokens with two values each, SQLite", (64, 128, 256, 512), _completions
    ),
}
