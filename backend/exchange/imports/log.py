"""The contents of a log: its values, its facts and its completions."""

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
class LogMetadata:
    """Facts about the run in a log, in addition to the values."""

    name: str = ""
    variant: str | None = None
    """Name that the seeds of a variant share; None for the name of the run, empty for that of the file."""
    config: dict[str, Any] = field(default_factory=dict)
    """The unmodified config of the other trainer."""
    seed: int | None = None
    steps: int | None = None
    """Planned number of steps."""
    started_at: float | None = None
    finished_at: float | None = None
    """End of the run in Unix time."""
    failure: str = ""
    """Reason of the failure, if the run failed."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the report."""


@dataclass
class Log:
    """A log that has been read."""

    table: Table
    metadata: LogMetadata = field(default_factory=LogMetadata)
    origin: str = ""
    """Origin according to the content, if it is more specific than the format (a CSV file of W&B); else
    empty.
    """
    step: str | None = None
    """Column of steps, if the format has one; None if it is to be guessed."""
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
            setattr(self.metadata, name, redact_document(getattr(self.metadata, name)))


def _redacted_names(columns: Iterable[str]) -> dict[str, str]:
    """Return column names without secrets by original name; duplicates get a number."""
    names: dict[str, str] = {}
    used_names: set[str] = set()
    for column in columns:
        redacted_name = redact(column)
        numbered_names = (f"{redacted_name} {number}" if number > 1 else redacted_name for number in count(1))
        names[column] = next(name for name in numbered_names if name not in used_names)
        used_names.add(names[column])
    return names


def build_completion_log(completions: Completions, table: Table, origin: str = "") -> Log:
    """Return a log with only completions, whose curves are means by step; raise BadLog if there are none."""
    if not completions.samples:
        bad_lines = table.bad.first
        raise BadLog(
            f"has no completions; line {bad_lines[0].line} {bad_lines[0].reason}"
            if bad_lines
            else "has no completions"
        )
    by_step: dict[int, list[Sample]] = defaultdict(list)
    for sample in completions.samples:
        by_step[sample.step].append(sample)
    for step, samples in sorted(by_step.items()):
        table.add(0, [("step", float(step)), *_means(samples)])
    note = "Curves are means of the completions; import the log of the metrics too for the others."
    return Log(
        table, LogMetadata(notes=[note]), origin=origin, step="step", completions=completions, is_derived=True
    )


def _means(samples: list[Sample]) -> Iterator[tuple[str, float]]:
    for split, prefix in (("train", ""), ("eval", "eval/")):
        split_samples = [sample for sample in samples if sample.split == split]
        columns = {"reward/mean": [sample.reward for sample in split_samples]}
        columns[f"{'reward/' if not prefix else ''}accuracy"] = [
            None if sample.correct is None else float(sample.correct) for sample in split_samples
        ]
        for name in dict.fromkeys(name for sample in split_samples for name in sample.rewards):
            columns[f"reward/{name}/mean"] = [sample.rewards.get(name) for sample in split_samples]
        for name, values in columns.items():
            numbers = [value for value in values if value is not None]
            if numbers:
                yield prefix + name, _mean(numbers)


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except (OverflowError, ValueError):  # an overflowing sum, or infinities of both signs
        return sum(values) / len(values)
