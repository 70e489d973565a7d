"""Rows of metrics in printed output, with all information about their steps."""

import math
import re
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from backend.exchange.imports.names import is_known, metric_of_name
from backend.exchange.imports.table import Ints, Table, as_number

NO_STEP = -1
TRAINING = "train"
"""Label of rows that are called those of the training."""
_BEFORE = re.compile(
    r"\b(rollout|train(?:ing)?[ _/]step|global[ _]step|step|iter(?:ation)?|eval|perf)\b"
    r"\s{0,2}[:=#]?\s{0,2}(\d{1,10})(?:\s?/\s?\d{1,10})?\W{0,4}(?:\w{1,20}\W{0,3})?$",
    re.IGNORECASE,
)
_NUMBER_BEFORE = re.compile(r"\s{0,9}[\[(#]?\s?(\d{1,9})\s?[\])]?\s?[:|-]?\s{0,9}$")
_COUNTERS = (
    "global_step", "train/global_step", "training/global_step", "trainer/global_step",
    "global_step/max_steps", "system/step", "step", "_step", "training_step", "train_step", "global_steps",
    "iteration", "iter", "train/step", "rollout/step",
)  # fmt: skip


class StepHint(NamedTuple):
    """Information about the step of a row."""

    step: int = NO_STEP
    """Step in the row itself."""
    heading: int = NO_STEP
    """Step in the last line that contained only a step."""
    total: int = 0
    """Total number of steps, of an epoch or of the training, if it is in the row."""
    epoch: float = math.nan
    bars: tuple[tuple[int, int], ...] = ()
    """(count, total) of the progress bars before the row, newest first for each total."""
    counter: str = ""
    """Name of the count, if a log has two: `rollout` and `step`."""
    word: str = ""
    """Word before the step in a line of pairs, see `within_steps`."""
    writer: str = ""
    """Process that printed the row."""
    is_eval: bool = False
    """Whether the row is of an evaluation."""
    tag: str = ""
    """Word in or above the row that may say so, or `TRAINING`; see `resolve_tags`."""
    suite: str = ""
    """Name of the evaluation's set of problems, if the log has several."""


class Rows:
    """The rows of one form."""

    def __init__(self, limit: int) -> None:
        self.table = Table(limit)
        self.hints: list[StepHint] = []
        self.lines = 0
        """Number of lines of the text that the rows use."""
        self.ends: list[int] = []
        """Indexes of rows before which a training ended."""
        self.left_out: list[int] = []
        """Indexes of rows that repeat metrics of their step."""

    @classmethod
    def of_table(cls, table: Table) -> Self:
        """Return the rows of a table without hints."""
        rows = cls(0)
        rows.table = table
        return rows

    def __len__(self) -> int:
        return len(self.hints)

    def add(self, line: int, cells: Iterable[tuple[str, Any]], hint: StepHint) -> None:
        """Add a row."""
        self.table.add(line, cells)
        self.hints.append(hint)

    def insert(self, rows: "Rows") -> None:
        """Insert the rows of another form by their lines."""
        self.table.append(rows.table)
        self.hints += rows.hints
        self.lines += len(rows)
        order = np.argsort(np.asarray(self.table.lines, np.int64), kind="stable")
        self.table.reorder(order)
        self.hints = [self.hints[number] for number in order.tolist()]

    def end_training(self) -> None:
        """Mark the end of a training, so that following rows belong to another."""
        self.ends.append(len(self))

    @property
    def known_values(self) -> int:
        """Number of values of metrics with known names, which indicate that these rows are metrics of the
        training. Values of the same step count once, such as those of each completion.
        """
        epochs = [0.0 if math.isnan(hint.epoch) else hint.epoch for hint in self.hints]
        keys = np.column_stack(([hint.step for hint in self.hints], epochs))
        count = 0
        for name, column in self.table.columns.items():
            if is_known(name):
                keys_of_values = keys[column.numbers()[0]]
                has_step = keys_of_values[:, 0] != NO_STEP
                count += len(np.unique(keys_of_values[has_step], axis=0)) + int((~has_step).sum())
        return count

    def strays(self) -> Ints:
        """Return the indexes of rows that are not metrics, such as a printed config or an object in a
        completion.

        They have no step and no epoch, and mainly names that are no metrics and that other rows lack, or no
        name of another row. If most rows have an epoch, repeating a few of their names is not enough either.
        """
        has_epoch = np.array([hint.epoch >= 0 for hint in self.hints])
        have_most_epochs = 2 * has_epoch.sum() >= len(self)
        is_reference = has_epoch if have_most_epochs else np.ones(len(self), bool)
        is_metric, is_shared = np.zeros(len(self), bool), np.zeros(len(self), bool)
        counts, foreign_counts, usual_counts = np.zeros((3, len(self)), np.int64)
        rows_by_name = {name: column.numbers()[0] for name, column in self.table.columns.items()}
        usual_metrics = {
            metric_of_name(name)
            for name, rows in rows_by_name.items()
            if 2 * is_reference[rows].sum() >= is_reference.sum()
        }
        for name, rows in rows_by_name.items():
            is_usual = metric_of_name(name) in usual_metrics
            counts[rows] += 1
            is_shared[rows] |= len(rows) > 1
            is_metric[rows] |= is_known(name)
            usual_counts[rows] += is_usual
            foreign_counts[rows] += not (is_usual or is_known(name))
        if not is_metric.any():
            return np.empty(0, np.int64)
        is_placed = has_epoch | np.array([bool(hint.counter) or hint.is_eval for hint in self.hints])
        has_step = np.array([hint.step != NO_STEP for hint in self.hints])
        # half of the names suffice beside rows with an epoch; otherwise most of them are needed
        is_foreign = 2 * foreign_counts >= counts if have_most_epochs else 2 * foreign_counts > counts
        is_repetition = have_most_epochs & (usual_counts == counts) & (2 * usual_counts < len(usual_metrics))
        is_result = is_metric & np.array([hint.is_eval for hint in self.hints])
        is_odd = (~is_shared & ~is_result) | ((is_foreign | is_repetition) & ~is_placed)
        return np.flatnonzero(~(is_metric | is_placed) | (is_odd & ~has_step & is_shared.any()))


def with_steps(table: Table, steps: Sequence[int] | Ints, name: str) -> None:
    """Set the steps of the rows as a column of the table."""
    steps = np.asarray(steps, np.int64)
    rows = np.flatnonzero(steps >= 0)
    table.columns.pop(name, None)
    column = table.column(name)
    column.rows, column.values = array("q", rows.tobytes()), array("d", steps[rows].astype(float).tobytes())


def find_step(value_by_name: dict[str, Any], text_before: str) -> tuple[int, str]:
    """Return the step in an object or in the text before it, and what it counts."""
    if match := _BEFORE.search(text_before[-300:]):
        return int(match[2]), match[1].lower()
    for name in _COUNTERS:
        number = as_number(value_by_name[name]) if name in value_by_name else None
        if number is not None and number.is_integer() and 0 <= number < 2**31:
            return int(number), name.partition("/")[0] if "/" in name else ""
    return NO_STEP, ""


def find_number(text_before: str) -> int | None:
    """Return the number before an object, as in `[10] {'reward': 0.5}`, which may be its step."""
    match = _NUMBER_BEFORE.match(text_before) if len(text_before) < 40 else None
    return int(match[1]) if match else None
