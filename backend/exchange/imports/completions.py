"""Completions of a log, which become the rollouts of its run."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from backend.base.redaction import redact_document
from backend.base.text import clean_text
from backend.exchange.imports.table import as_number
from backend.exchange.imports.texts import MAX_TEXT
from backend.rollouts.foreign import MAX_COMPLETIONS as MAX_OF_GROUP
from backend.rollouts.foreign import Split, pack_foreign
from backend.rollouts.foreign_metrics import Places, foreign_metrics
from backend.rollouts.records import CompletionRecord, GroupRecord, make_foreign_group
from backend.rollouts.store import PackedGroups
from backend.rollouts.text_metrics import WrittenCompletion

MAX_COMPLETIONS = 50_000
MAX_CHARACTERS = 100_000_000
MAX_TERMS = 64
MAX_NAME = 128
LAST_STEP = 2**31 - 2


class Sample(NamedTuple):
    """One completion as a trainer has written it."""

    step: int
    prompt: str
    completion: str
    answer: str = ""
    reward: float | None = None
    rewards: dict[str, float] = {}  # noqa: RUF012 - never changed
    advantage: float | None = None
    correct: bool | None = None
    split: Split = "train"


class Completions:
    """Completions in the order of the log, up to a limit; counts those beyond it."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._characters = 0
        self.beyond = 0
        """Completions beyond the limit."""
        self.cut = 0
        """Completions whose text is cut."""

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def is_full(self) -> bool:
        """Whether no further one is taken."""
        return len(self.samples) >= MAX_COMPLETIONS or self._characters > MAX_CHARACTERS

    def add(self, sample: Sample) -> None:
        """One more, without secrets; a long text is cut."""
        sample = Sample(**redact_document(sample._asdict()))
        texts = [sample.prompt, sample.completion, sample.answer]
        if any(len(text) > MAX_TEXT for text in texts):
            self.cut += 1
            prompt, completion, answer = (text[:MAX_TEXT] for text in texts)
            sample = sample._replace(prompt=prompt, completion=completion, answer=answer)
        self._characters += sum(min(len(text), MAX_TEXT) for text in texts)
        if self.is_full:
            self.beyond += 1
        else:
            self.samples.append(sample)

    def extend(self, completions: "Completions") -> None:
        """Add those of another file."""
        for sample in completions.samples:
            self.add(sample)
        self.beyond += completions.beyond
        self.cut += completions.cut

    def notes(self) -> list[str]:
        """Sentences for the report: how many there are, and what of them is left out."""
        groups = [group for _, groups_of_step in self.steps() for group in groups_of_step]
        sizes = sum(len(group.completions) for group in groups)
        notes = [f"{sizes:,} completions of {len(groups):,} prompts are stored as rollouts."]
        if self.beyond:
            limit = f"{MAX_COMPLETIONS:,} completions and {MAX_CHARACTERS:,} characters"
            notes.append(f"{self.beyond:,} further completions are left out: at most {limit} are stored.")
        if (surplus := len(self.samples) - sizes) > 0:
            notes.append(f"{surplus:,} completions are left out: a group has at most {MAX_OF_GROUP:,}.")
        if self.cut:
            notes.append(f"{self.cut:,} completions are cut: a text has at most {MAX_TEXT:,} characters.")
        return notes

    def steps(self) -> Iterator[tuple[int, list[GroupRecord]]]:
        """The groups of each step: completions of one prompt, in the order in which prompts first come."""
        places: dict[int, dict[tuple[Split, str, str], list[Sample]]] = defaultdict(dict)
        for sample in self.samples:
            key = (sample.split, sample.prompt, sample.answer)
            places[sample.step].setdefault(key, []).append(sample)
        for step, groups in sorted(places.items()):
            seen = dict.fromkeys(("train", "eval"), 0)
            records = []
            for (split, prompt, answer), samples in groups.items():
                completions = [_completion(sample) for sample in samples[:MAX_OF_GROUP]]
                records.append(make_foreign_group(split, seen[split], prompt, answer, completions))
                seen[split] += 1
            yield step, records

    def packed(self, run_id: str) -> list[PackedGroups]:
        """Rows for the database, step by step."""
        return [pack_foreign(run_id, step, groups) for step, groups in self.steps()]

    def written(self) -> dict[int, Places]:
        """Return the training completions as texts, by step and place."""
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
        """text/* by step, of the training completions."""
        steps = self.written().items()
        return {
            step: foreign_metrics(
                [completion for completions in places.values() for completion in completions]
            )
            for step, places in steps
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


def step_of(value: Any) -> int | None:
    """A step, or None for anything else."""
    is_whole = type(value) is int or (type(value) is float and value.is_integer())
    return int(value) if is_whole and 0 <= value <= LAST_STEP else None


def terms_of(cells: Iterable[tuple[str, Any]]) -> dict[str, float]:
    """Return the numbers among some cells: terms of the reward."""
    numbers = ((name, as_number(value)) for name, value in cells if type(value) in (int, float, bool))
    terms = {name[:MAX_NAME]: number for name, number in numbers if number is not None}
    return dict(list(terms.items())[:MAX_TERMS])
