"""Rows of metrics that a trainer has printed, each with all that tells its step."""

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from backend.exchange.imports.names import is_known
from backend.exchange.imports.table import Ints, Table

NO_STEP = -1


class Clue(NamedTuple):
    """What is known about the step of a row."""

    step: int = NO_STEP
    """Step that the row itself names."""
    heading: int = NO_STEP
    """Step of the last line that only named one."""
    total: int = 0
    """Number of the steps, of an epoch or of all, if the row names it."""
    epoch: float = math.nan
    bars: tuple[tuple[int, int], ...] = ()
    """(count, total) of the progress bars before the row, the newest of each total first."""
    counter: str = ""
    """What the step counts, where a log counts two things: `rollout` and `step`."""
    writer: str = ""
    """Process that wrote the row."""
    is_eval: bool = False


class Rows:
    """The rows of one form."""

    def __init__(self, limit: int) -> None:
        self.table = Table(limit)
        self.clues: list[Clue] = []
        self.lines = 0
        """Lines of the text that the rows take."""
        self.ends: list[int] = []
        """Numbers of rows before which a training had ended."""

    def __len__(self) -> int:
        return len(self.clues)

    def add(self, line: int, cells: Iterable[tuple[str, Any]], clue: Clue) -> None:
        """One more."""
        self.table.add(line, cells)
        self.clues.append(clue)

    def end_training(self) -> None:
        """The rows that follow are of another training."""
        self.ends.append(len(self))

    @property
    def known_values(self) -> int:
        """Values of metrics with known names: these rows are likely the metrics of the training."""
        return sum(len(column.values) for name, column in self.table.columns.items() if is_known(name))

    def strays(self) -> Ints:
        """Numbers of rows that are no metrics: a printed config, an object in a completion."""
        is_metric, is_shared = np.zeros(len(self), bool), np.zeros(len(self), bool)
        for name, column in self.table.columns.items():
            rows, _ = column.numbers()
            is_shared[rows] |= len(rows) > 1
            is_metric[rows] |= is_known(name)
        if not is_metric.any():
            return np.empty(0, np.int64)
        is_placed = np.array([bool(clue.counter) or clue.is_eval or clue.epoch >= 0 for clue in self.clues])
        is_alone = ~is_shared & np.array([clue.step == NO_STEP for clue in self.clues])
        return np.flatnonzero(~(is_metric | is_placed) | (is_alone & is_shared.any()))


def with_steps(table: Table, steps: Sequence[int] | Ints, name: str) -> None:
    """Enter the steps of the rows as a column of its own."""
    steps = np.asarray(steps, np.int64)
    rows = np.flatnonzero(steps >= 0)
    table.columns.pop(name, None)
    column = table.column(name)
    column.rows, column.values = array("q", rows.tobytes()), array("d", steps[rows].astype(float).tobytes())
