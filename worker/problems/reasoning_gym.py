"""Use any task of the reasoning_gym library as a problem."""

from hashlib import blake2b
from typing import Any, NamedTuple

from backend.base.sandbox.errors import SandboxError, Unusable
from backend.base.sandbox.process import Sandbox
from backend.config.problems import ReasoningGymProblem
from backend.config.rows import question_key
from worker.problems.base import Split
from worker.problems.rows import append_instruction
from worker.prompt import Prompt
from worker.rewards.correctness import JUDGING
from worker.rewards.reasoning_gym.entries import CHUNK

EVAL_SHARE = 4
"""Number of questions of which one is held out."""

QUESTION_SECONDS = 60.0
EVAL_SEED = 2**31
EVAL_TRIES = 400
TRAIN_SEEDS = 2**29
TRAIN_TRIES = 16
SEEDS_PER_TRY = 2**26


class EntryPosition(NamedTuple):
    """The position of an entry in the library's stream."""

    seed: int
    offset: int


class ReasoningGym:
    """Questions drawn by position, in a separate process.

    The split depends only on a hash of the question's text, not on the seed. Training and evaluation also
    draw from different seeds. The eval split ignores the run's seed, so all runs get the same questions. The
    generating process has a fixed hash seed, so that tasks that iterate over sets are repeatable.
    """

    def __init__(self, source: ReasoningGymProblem, *, seed: int) -> None:
        self.name = source.label
        self._source = source
        self._train_seed = (
            int.from_bytes(blake2b(f"train/{seed}".encode(), digest_size=8).digest()) % TRAIN_SEEDS
        )
        self._sandbox = Sandbox(JUDGING)
        self._held_out: dict[int, EntryPosition] = {}
        self._tried_count = 0
        self._failures = 0

    def sample(self, index: int, split: Split) -> Prompt:
        """Return prompt number `index` of a split. Raise ValueError if the task rejects its parameters.

        If a task has few questions, its held-out questions repeat after the last one.
        """
        position = self._train_position(index) if split == "train" else self._eval_position(index)
        return self._prompt(position, index=index)

    def close(self) -> None:
        """End the generating process."""
        self._sandbox.close()

    def _train_position(self, index: int) -> EntryPosition:
        for attempt in range(TRAIN_TRIES):
            position = _position(self._train_seed + attempt * SEEDS_PER_TRY, index)
            if not is_held_out(self._entry(position)["question"]):
                return position
        raise ValueError(
            f"{self._source.task} has too few different questions: all that were drawn are held out"
        )

    def _eval_position(self, index: int) -> EntryPosition:
        while len(self._held_out) <= index and self._failures < EVAL_TRIES:
            self._failures = 0 if self._try_next() else self._failures + 1
        if not self._held_out:
            raise ValueError(f"{self._source.task} has too few different questions: none can be held out")
        return list(self._held_out.values())[index % len(self._held_out)]

    def _try_next(self) -> bool:
        """Examine one more question of the evaluation's seeds, and return whether it is held out and new."""
        position = _position(EVAL_SEED, self._tried_count)
        self._tried_count += 1
        question = self._entry(position)["question"]
        is_new = is_held_out(question) and question_key(question) not in self._held_out
        if is_new:
            self._held_out[question_key(question)] = position
        return is_new

    def _entry(self, position: EntryPosition) -> dict[str, str]:
        try:
            entry: dict[str, str] = self._sandbox.run_operation(
                "gym_question", seconds=QUESTION_SECONDS, **self._position_arguments(position)
            )
        except (SandboxError, Unusable) as error:
            raise ValueError(f"reasoning_gym task {self._source.task}: {error}") from error
        return entry

    def _position_arguments(self, position: EntryPosition) -> dict[str, Any]:
        return {"task": self._source.task, "config": self._source.task_config, **position._asdict()}

    def _prompt(self, position: EntryPosition, *, index: int) -> Prompt:
        entry = self._entry(position)
        return Prompt(
            id=f"{self.name}/{question_key(entry['question']):016x}",
            text=append_instruction(entry["question"], self._source.instruction),
            answer=entry["answer"],
            problem=self.name,
            domain=self._source.domain,
            index=index,
            columns={"reasoning_gym": self._position_arguments(position)},
        )


def is_held_out(question: str) -> bool:
    """Return whether a question belongs to the eval split, which depends only on its text."""
    return question_key(question) % EVAL_SHARE == 0


def _position(seed: int, index: int) -> EntryPosition:
    """Return a position in chunks of consecutive seeds.

    Most tasks draw entry i of seed s from s + i, so the chunks prevent repeated entries.
    """
    chunk, offset = divmod(index, CHUNK)
    return EntryPosition(seed + chunk * CHUNK, offset)
