"""Select a dataset's training rows by duplicates, overlap with held-out questions and pass rate."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from backend.config.columns import cell
from backend.config.data import DataConfig
from backend.config.rows import value_excerpt

MAX_NAMED = 10
LAST_NUMBER = re.compile(r"-?\d+(?:\.\d+)?\s*$")

Dropped = Literal["near_duplicates", "duplicates", "contamination"]
FIELDS: tuple[Dropped, ...] = ("near_duplicates", "duplicates", "contamination")
"""Names of the config fields that may have the value `drop`."""


@dataclass
class Selection:
    """The result of the selection for one source."""

    source: str
    rows: int
    """Number of training rows before selection."""
    duplicates: int = 0
    """Number of rows whose question repeats an earlier one."""
    out_of_range: int = 0
    """Number of rows whose pass rate is unknown or outside the limits."""
    measured: int = 0
    """Number of rows with a pass rate of the earlier run `measured_by`."""
    measured_by: str = ""
    contaminated: int = 0
    """Number of rows that overlap with a held-out question."""
    examples: list[str] = field(default_factory=list)
    """Ids of the first contaminated rows."""
    near: int = 0
    """Number of near duplicates of earlier rows."""
    near_held_out: int = 0
    """Number of near duplicates of held-out questions."""
    twins: list[str] = field(default_factory=list)
    """Descriptions of the first near duplicates of both kinds."""
    dropped: list[Dropped] = field(default_factory=list)
    """Findings whose rows are excluded instead of only counted."""

    @property
    def sentence(self) -> str:
        """A sentence about the result, or "" if there is nothing to report."""
        near_outcome, duplicate_outcome, contamination_outcome = map(self._outcome, FIELDS)
        counted_phrases = [
            (self.duplicates, f"repeat a question ({duplicate_outcome})"),
            (self.near, f"are near duplicates of another row ({near_outcome})"),
            (self.near_held_out, f"are near duplicates of a held-out question ({near_outcome})"),
            (self.measured, f"have a pass rate of {self.measured_by!r}"),
            (self.out_of_range, "have a pass rate outside the limits (left out)"),
            (self.contaminated, f"overlap with held-out questions ({contamination_outcome})"),
        ]
        clauses = [f"{count:,} {phrase}" for count, phrase in counted_phrases if count]
        return f"{self.source}: of {self.rows:,} training rows {', '.join(clauses)}" if clauses else ""

    def _outcome(self, name: Dropped) -> str:
        return "left out" if name in self.dropped else "kept"


def pass_rate(row: Any, data: DataConfig) -> float | None:
    """Return the measured pass rate of a row, or None if it is unknown.

    Raise ValueError if the value is not a rate.
    """
    value = cell(row, data.pass_rate_field)
    rate = parse_number(value)
    if rate is not None and not 0 <= rate <= 1:
        raise ValueError(
            f"field {data.pass_rate_field!r}: expected a pass rate from 0 to 1, got {value_excerpt(value)}"
        )
    return rate


def difficulty(row: Any, rate: float | None, data: DataConfig) -> float:
    """Return a number that grows with the difficulty of a row, or infinity if it is unknown."""
    if data.difficulty_field:
        value = parse_number(cell(row, data.difficulty_field))
        return math.inf if value is None else value
    return math.inf if rate is None else -rate


def parse_number(value: Any) -> float | None:
    """Return a number, or the number at the end of a text, or None if there is none."""
    if isinstance(value, str):
        match = LAST_NUMBER.search(value[-100:])
        value = float(match[0]) if match else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def is_within_limits(rates: Sequence[float | None], data: DataConfig) -> list[bool]:
    """Return whether each pass rate is known and within the limits."""
    return [rate is not None and data.min_pass_rate <= rate <= data.max_pass_rate for rate in rates]
