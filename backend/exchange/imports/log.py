"""A log that has been read: its values, its facts and its completions."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from backend.base.redaction import redact, redact_document
from backend.exchange.imports.completions import Completions, Sample
from backend.exchange.imports.table import BadLog, Table


@dataclass
class Facts:
    """Facts of a log about its run, beside the values."""

    name: str = ""
    variant: str | None = None
    """Runs of one variant are seeds of each other; None: the name, empty: the file's."""
    config: dict[str, Any] = field(default_factory=dict)
    """The other trainer's config, as it is."""
    seed: int | None = None
    steps: int | None = None
    """Steps that the run was to train."""
    started_at: float | None = None
    finished_at: float | None = None
    """Seconds since 1970."""
    failure: str = ""
    """Reason of the failure, if the run failed."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the report."""


@dataclass
class Log:
    """A log that has been read."""

    table: Table
    facts: Facts = field(default_factory=Facts)
    origin: str = ""
    """Origin according to the content, if it says more than the format (a CSV file of W&B); else empty."""
    step: str | None = None
    """Column of steps, if the format has one; None if it is guessed."""
    completions: Completions | None = None
    is_derived: bool = False
    """Whether the values are means of the completions."""

    def redact(self) -> None:
        """Replace secrets in names and facts; the config is redacted when it is stored."""
        names = _redacted_names(self.table.columns)
        self.table.columns = {names[name]: column for name, column in self.table.columns.items()}
        for column in self.table.columns.values():
            column.example = redact(column.example)
        self.step = self.step and names.get(self.step, redact(self.step))
        for name in ("name", "variant", "failure", "notes"):
            setattr(self.facts, name, redact_document(getattr(self.facts, name)))


def _redacted_names(columns: Iterable[str]) -> dict[str, str]:
    """Return column names without secrets, by original name; a number is appended to a duplicate."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for column in columns:
        plain = redact(column)
        numbered = (f"{plain} {number}" if number > 1 else plain for number in count(1))
        names[column] = next(name for name in numbered if name not in taken)
        taken.add(names[column])
    return names


def log_of(completions: Completions, table: Table, origin: str = "") -> Log:
    """Return a log that holds only completions; its curves are means by step. `table` has its bad lines."""
    if not completions.samples:
        bad = table.bad.first
        raise BadLog(
            f"has no completions; line {bad[0].line} {bad[0].reason}" if bad else "has no completions"
        )
    by_step: dict[int, list[Sample]] = defaultdict(list)
    for sample in completions.samples:
        by_step[sample.step].append(sample)
    for step, samples in sorted(by_step.items()):
        table.add(0, [("step", float(step)), *_means(samples)])
    note = "Curves are means of the completions; import the log of the metrics too for the others."
    return Log(
        table, Facts(notes=[note]), origin=origin, step="step", completions=completions, is_derived=True
    )


def _means(samples: list[Sample]) -> Iterator[tuple[str, float]]:
    for split, prefix in (("train", ""), ("eval", "eval/")):
        of_split = [sample for sample in samples if sample.split == split]
        columns = {"reward/mean": [sample.reward for sample in of_split]}
        columns[f"{'reward/' if not prefix else ''}accuracy"] = [
            None if sample.correct is None else float(sample.correct) for sample in of_split
        ]
        for name in dict.fromkeys(name for sample in of_split for name in sample.rewards):
            columns[f"reward/{name}/mean"] = [sample.rewards.get(name) for sample in of_split]
        for name, values in columns.items():
            present = [value for value in values if value is not None]
            if present:
                yield prefix + name, _mean(present)


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except (OverflowError, ValueError):  # a sum beyond all numbers, or of infinities of both signs
        return sum(values) / len(values)
