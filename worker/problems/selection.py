"""The rows of a dataset that train, by duplicates, overlap with held-out questions and pass rate."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from backend.config.columns import cell
from backend.config.data import DataConfig
from backend.config.rows import shown_value

MAX_NAMED = 10
LAST_NUMBER = re.compile(r"-?\d+(?:\.\d+)?\s*$")

Dropped = Literal["near_duplicates", "duplicates", "contamination"]
FIELDS: tuple[Dropped, ...] = ("near_duplicates", "duplicates", "contamination")
"""Fields of a config that may be `drop`."""


@dataclass
class Selection:
    """The outcome for one source."""

    source: str
    rows: int
    """Training rows before anything was left out."""
    duplicates: int = 0
    """Rows whose question stood in an earlier one."""
    out_of_range: int = 0
    """Rows whose pass rate is unknown or outside the limits."""
    measured: int = 0
    """Rows with a pass rate of an earlier run, whose name is `measured_by`."""
    measured_by: str = ""
    contaminated: int = 0
    """Rows that overlap with a held-out question."""
    examples: list[str] = field(default_factory=list)
    """Ids of the first of these."""
    near: int = 0
    """Rows much like an earlier one."""
    near_held_out: int = 0
    """Rows much like a held-out question."""
    twins: list[str] = field(default_factory=list)
    """The first of both in words."""
    dropped: list[Dropped] = field(default_factory=list)
    """What is not only counted but left out."""

    @property
    def sentence(self) -> str:
        """The outcome in words; empty if there is nothing to say."""
        near, duplicates, contamination = map(self._outcome, FIELDS)
        parts = [
            (self.duplicates, f"repeat a question ({duplicates})"),
            (self.near, f"are near duplicates of another row ({near})"),
            (self.near_held_out, f"are near duplicates of a held-out question ({near})"),
            (self.measured, f"have a pass rate of {self.measured_by!r}"),
            (self.out_of_range, "have a pass rate outside the limits (left out)"),
            (self.contaminated, f"overlap with held-out questions ({contamination})"),
        ]
        told = [f"{count:,} {phrase}" for count, phrase in parts if count]
        return f"{self.source}: of {self.rows:,} training rows {', '.join(told)}" if told else ""

    def _outcome(self, name: Dropped) -> str:
        return "left out" if name in self.dropped else "kept"


def pass_rate(row: Any, data: DataConfig) -> float | None:
    """The measured pass rate of a row; None if it is not known. ValueError for what is no rate."""
    value = cell(row, data.pass_rate_field)
    rate = number_of(value)
    if rate is not None and not 0 <= rate <= 1:
        raise ValueError(
            f"field {data.pass_rate_field!r}: expected a pass rate from 0 to 1, got {shown_value(value)}"
        )
    return rate


def difficulty(row: Any, rate: float | None, data: DataConfig) -> float:
    """A number that grows with the difficulty of a row; infinite where it is not known."""
    if data.difficulty_field:
        value = number_of(cell(row, data.difficulty_field))
        return math.inf if value is None else value
    return math.inf if rate is None else -rate


def number_of(value: Any) -> float | None:
    """A number, or the one at the end of a text; None if there is none."""
    if isinstance(value, str):
        match = LAST_NUMBER.search(value[-100:])
        value = float(match[0]) if match else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def within(rates: Sequence[float | None], data: DataConfig) -> list[bool]:
    """Whether each pass rate is known and inside the limits."""
    return [rate is not None and data.min_pass_rate <= rate <= data.max_pass_rate for rate in rates]
