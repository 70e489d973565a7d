"""Completions of a log, which become the rollouts of its run."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from backend.base.redaction import redact_document
from backend.base.text import clean_text
from backend.exchange.imports.table import as_number
from backend.exchange.imports.texts import MAX_TEXT_CHARACTERS
from backend.rollouts.foreign import MAX_COMPLETIONS as MAX_OF_GROUP
from backend.rollouts.foreign import Split, pack_foreign
from backend.rollouts.foreign_metrics import CompletionsByPrompt, foreign_metrics
from backend.rollouts.records import CompletionRecord, GroupRecord, make_foreign_group
from backend.rollouts.store import PackedGroups
from backend.rollouts.text_metrics import WrittenCompletion

MAX_COMPLETIONS = 50_000
MAX_CHARACTERS = 100_000_000
MAX_TERMS = 64
MAX_NAME = 128
LAST_STEP = 2**31 - 2


class Sample(NamedTuple):
    """A completion as written by a trainer."""

    step: int
    prompt: str
    completion: str
    answer: str = ""
    reward: float | None = None
    rewards: dict[str, float] = {}  # noqa: RUF012 - never modified
    advantage: float | None = None
    correct: bool | None = None
    split: Split = "train"


class Completions:
    """Completions in the order of the log, up to a limit; counts those beyond it."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._characters = 0
        self.beyond = 0
        """Number of completions beyond the limit."""
        self.cut = 0
        """Number of completions whose text was truncated."""

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def is_full(self) -> bool:
        """Whether no more completions are stored."""
        return len(self.samples) >= MAX_COMPLETIONS or self._characters > MAX_CHARACTERS

    def add(self, sample: Sample) -> None:
        """Add a completion, without secrets and with truncated texts."""
        sample = Sample(**redact_document(sample._asdict()))
        texts = [sample.prompt, sample.completion, sample.answer]
        if any(len(text) > MAX_TEXT_CHARACTERS for text in texts):
            self.cut += 1
            prompt, completion, answer = (text[:MAX_TEXT_CHARACTERS] for text in texts)
            sample = sample._replace(prompt=prompt, completion=completion, answer=answer)
        self._characters += sum(min(len(text), MAX_TEXT_CHARACTERS) for text in texts)
        if self.is_full:
            self.beyond += 1
        else:
            self.samples.append(sample)

    def extend(self, completions: "Completions") -> None:
        """Add the completions of another file."""
        for sample in completions.samples:
            self.add(sample)
        self.beyond += completions.beyond
        self.cut += completions.cut

    def notes(self) -> list[str]:
        """Return sentences for the report about stored, truncated and omitted completions."""
        groups = [group for _, groups_of_step in self.steps() for group in groups_of_step]
        stored_count = sum(len(group.completions) for group in groups)
        notes = [f"{stored_count:,} completions of {len(groups):,} prompts are stored as rollouts."]
        if self.beyond:
            limit = f"{MAX_COMPLETIONS:,} completions and {MAX_CHARACTERS:,} characters"
            notes.append(f"{self.beyond:,} further completions are left out: at most {limit} are stored.")
        if (surplus := len(self.samples) - stored_count) > 0:
            notes.append(f"{surplus:,} completions are left out: a group has at most {MAX_OF_GROUP:,}.")
        if self.cut:
            notes.append(
                f"{self.cut:,} completions are cut: a text has at most {MAX_TEXT_CHARACTERS:,} characters."
            )
        return notes

    def steps(self) -> Iterator[tuple[int, list[GroupRecord]]]:
        """Yield the groups of each step, which are completions with the same prompt, in order."""
        samples_by_step: dict[int, dict[tuple[Split, str, str], list[Sample]]] = defaultdict(dict)
        for sample in self.samples:
            key = (sample.split, sample.prompt, sample.answer)
            samples_by_step[sample.step].setdefault(key, []).append(sample)
        for step, groups in sorted(samples_by_step.items()):
            next_index = dict.fromkeys(("train", "eval"), 0)
            records = []
            for (split, prompt, answer), samples in groups.items():
                completions = [_completion(sample) for sample in samples[:MAX_OF_GROUP]]
                records.append(make_foreign_group(split, next_index[split], prompt, answer, completions))
                next_index[split] += 1
            yield step, records

    def pack(self, run_id: str) -> list[PackedGroups]:
        """Return rows for the database, step by step."""
        return [pack_foreign(run_id, step, groups) for step, groups in self.steps()]

    def texts_by_step(self) -> dict[int, CompletionsByPrompt]:
        """Return the training completions as texts, by step and prompt index."""
        return {
            step: {
                group.prompt_index: [
                    WrittenCompletion(group.prompt, completion.text, is_truncated=True)
                    for completion in group.completions
                ]
                for group in groups
                if group.kind == "train"
            }
            for step, groups in self.steps()
        }

    def text_metrics(self) -> dict[int, dict[str, float]]:
        """Return text/* of the training completions, by step."""
        steps = self.texts_by_step().items()
        return {
            step: foreign_metrics(
                [completion for completions in completions_by_prompt.values() for completion in completions]
            )
            for step, completions_by_prompt in steps
        }

    @property
    def last_step(self) -> int:
        """The largest step."""
        return max(sample.step for sample in self.samples)


def _completion(sample: Sample) -> CompletionRecord:
    rewards = {clean_text(name): value for name, value in sample.rewards.items()}
    return CompletionRecord(
        sample.completion,
        reward=sample.reward,
        rewards=rewards,
        advantage=sample.advantage,
        correct=sample.correct,
    )


def parse_step(value: Any) -> int | None:
    """Return a value as a step, or None if it is not a valid step."""
    is_whole = type(value) is int or (type(value) is float and value.is_integer())
    return int(value) if is_whole and 0 <= value <= LAST_STEP else None


def parse_reward_terms(cells: Iterable[tuple[str, Any]]) -> dict[str, float]:
    """Return the numbers among some cells as reward terms."""
    numbers = ((name, as_number(value)) for name, value in cells if type(value) in (int, float, bool))
    terms = {name[:MAX_NAME]: number for name, number in numbers if number is not None}
    return dict(list(terms.items())[:MAX_TERMS])
