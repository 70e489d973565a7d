"""A run with a million realistic completions, with words of a vocabulary distributed by Zipf's law."""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import insert

from backend.rollouts.records import CompletionRecord, GroupRecord
from backend.rollouts.store import PackedGroups, pack_groups, write_groups
from backend.storage.engine import Sessions
from backend.storage.models import Attempt, Experiment, Run
from backend.storage.rollout_words import index_groups
from benchmarks.scale.fill import attempt_row, run_row

COMPLETIONS_PER_GROUP = 8
GROUPS_PER_STEP = 125
"""Number of groups per step."""
STEPS_PER_BATCH = 8
VOCABULARY_SIZE = 30_000
SHORTEST, LONGEST = 30, 90
"""Minimum and maximum number of words of a completion."""
TOKENS_EVERY_STEPS = 50
"""Number of steps per step that stores the values of its tokens."""
PROBES, PROBE_STEPS = 500, 20

RARE_WORD = "quaternion"
"""Word that occurs in one of 10,000 completions."""
SPREADING_PHRASE = "let me double check"
"""Phrase that half of the completions contain from the middle of the run on."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Size of the run."""

    completions: int = 1_000_000
    prompts: int = 10_000

    def scaled(self, share: float) -> "Rollouts":
        """Return a smaller size, to try the benchmark itself."""
        return Rollouts(max(2_000, int(self.completions * share)), max(PROBES, int(self.prompts * share)))

    @property
    def steps(self) -> int:
        """Number of steps of the run."""
        return max(2, self.completions // (GROUPS_PER_STEP * COMPLETIONS_PER_GROUP))


@dataclass(frozen=True, slots=True)
class FilledRollouts:
    """A written run and the speed of writing."""

    run: str
    completions: int
    stored_per_second: float
    indexed_per_second: float


def fill_rollouts(sessions: Sessions, size: Rollouts) -> FilledRollouts:
    """Write the run and index its completions as the service does in the background."""
    with sessions.begin() as session:
        experiment = Experiment(
            name="a million completions", request={"variants": [], "seeds": []}, request_hash="0" * 64
        )
        session.add(experiment)
        session.flush()
        row = run_row(0, experiment.id, random.Random(0)) | {"steps": size.steps, "last_step": size.steps}
        session.execute(insert(Run), [row])
        session.execute(insert(Attempt), [attempt_row(row["id"])])
        run = row["id"]
    writer = _Writer(size)
    started_at, completions = time.perf_counter(), 0
    for first in range(0, size.steps, STEPS_PER_BATCH):
        packed = PackedGroups()
        for step in range(first + 1, min(first + STEPS_PER_BATCH, size.steps) + 1):
            packed.extend(pack_groups(run, step, 1, list(writer.groups(step)), with_tokens=True))
        completions += len(packed.rollouts)
        with sessions.begin() as session:
            write_groups(session, packed)
    storing_seconds = time.perf_counter() - started_at
    started_at = time.perf_counter()
    for _ in index_groups(sessions):
        pass
    indexing_seconds = time.perf_counter() - started_at
    return FilledRollouts(run, completions, completions / storing_seconds, completions / indexing_seconds)


class _Writer:
    """Writes completions with a fixed seed."""

    def __init__(self, size: Rollouts) -> None:
        self._size = size
        self._chance = np.random.default_rng(20)
        self._words = _vocabulary(self._chance)
        ranks = np.arange(1, VOCABULARY_SIZE + 1, dtype=np.float64)
        self._cumulated = np.cumsum(1 / ranks) / np.sum(1 / ranks)
        self._difficulty = self._chance.random(size.prompts)

    def groups(self, step: int) -> Iterator[GroupRecord]:
        """Yield the groups of a step, and the probes if the step is evaluated."""
        prompts = self._chance.integers(0, self._size.prompts, GROUPS_PER_STEP)
        has_tokens = step % TOKENS_EVERY_STEPS == 0
        for index, prompt in enumerate(prompts.tolist()):
            yield self._group("train", index, prompt, step, COMPLETIONS_PER_GROUP, has_tokens=has_tokens)
        if step % max(1, self._size.steps // PROBE_STEPS) == 0:
            for prompt in range(PROBES):
                yield self._group("eval", prompt, prompt, step, 1, has_tokens=False)

    def _group(
        self, kind: str, index: int, prompt: int, step: int, count: int, *, has_tokens: bool
    ) -> GroupRecord:
        progress = step / self._size.steps
        correct = self._chance.random(count) < 0.3 * progress + 0.7 * self._difficulty[prompt]
        texts = [self._text(progress, is_right=is_right) for is_right in correct.tolist()]
        return GroupRecord(
            kind=kind,
            prompt_index=index,
            prompt_id=f"{kind}-{prompt}",
            problem="words",
            domain="words",
            prompt=f"Problem {prompt}: {self._words[prompt % VOCABULARY_SIZE]}?",
            answer=str(prompt),
            completions=tuple(
                self._completion(text, is_right=is_right, has_tokens=has_tokens)
                for text, is_right in zip(texts, correct.tolist(), strict=True)
            ),
        )

    def _text(self, progress: float, *, is_right: bool) -> str:
        count = int(self._chance.integers(SHORTEST, LONGEST))
        ranks = np.searchsorted(self._cumulated, self._chance.random(count)).tolist()
        words = [self._words[min(rank, VOCABULARY_SIZE - 1)] for rank in ranks]
        if self._chance.random() < (0.5 if progress > 0.5 else 0.02):
            words[count // 2 : count // 2] = [f"{SPREADING_PHRASE},"]
        if self._chance.random() < 1e-4:
            words.append(RARE_WORD)
        result = int(self._chance.integers(0, 1000))
        return f"<think>{' '.join(words)}</think>\\boxed{{{result if is_right else -result}}}"

    def _completion(self, text: str, *, is_right: bool, has_tokens: bool) -> CompletionRecord:
        strings: Sequence[str] = text.split(" ") if has_tokens else ()
        count = len(strings) or text.count(" ") + 1
        is_cut = bool(self._chance.random() < 0.03)
        return CompletionRecord(
            text=text,
            token_strings=strings,
            token_ids=np.arange(count),
            reward=float(is_right) - 0.5 * is_cut,
            rewards={"correctness": float(is_right)},
            advantage=float(self._chance.normal()),
            finish_reason="length" if is_cut else "stop",
            correct=is_right,
            flags=(("truncated",) if is_cut else ()) + (() if is_right else ("wrong",)),
            arrays=self._arrays(count) if has_tokens else {},
        )

    def _arrays(self, count: int) -> dict[str, NDArray[np.float32]]:
        names = ("logprob", "policy_logprob", "old_logprob", "entropy", "ratio", "loss", "gradient")
        return {name: self._chance.normal(size=count).astype(np.float32) for name in names}


def _vocabulary(chance: Any) -> list[str]:
    """Return distinct words of two to four syllables, the most common first."""
    syllables = [consonant + vowel for consonant in "bcdfghklmnprstvz" for vowel in "aeiou"]
    vocabulary: dict[str, None] = dict.fromkeys(("the", "so", "we", "is", "and", "of", "then", "equals"))
    while len(vocabulary) < VOCABULARY_SIZE:
        word_syllables = chance.choice(syllables, int(chance.integers(2, 5)))
        vocabulary["".join(word_syllables)] = None
    return list(vocabulary)
