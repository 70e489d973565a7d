"""Progress bars of tqdm: their counts, and the metrics in their descriptions and brackets.

reward 0.3:  33%|###   | 3/9 [00:12<01:02,  3.1s/it, kl=0.1]
3it [00:12,  3.1s/it, reward=0.3]
"""

import math
import re
from collections import deque
from typing import NamedTuple

from backend.exchange.imports.console.forms import (
    MAX_LINE_CHARACTERS,
    TrainingPosition,
    find_position,
    may_name_step,
    without_types,
)
from backend.exchange.imports.console.pairs import pairs
from backend.exchange.imports.console.rows import Rows, StepHint

MAX_KEPT_BARS = 24
"""Number of progress bars that are remembered until a line with metrics."""
MAX_COUNTER_CHARACTERS = 2_000
"""Length of the end of a text that is searched for a count."""

_COUNTER_PATTERN = re.compile(r"(\d{1,10})(?:/(\d{1,10})|it) \[")
_START_PATTERN = re.compile(r"\d{1,3}%\||\d{1,10}it \[")
"""Pattern of the start of a bar with or without a total, after its description."""
_METRIC_PATTERN = re.compile(r"=|[A-Za-z](?:: ?| )-?\d{0,9}\.\d")
_WHOLE_BAR_PATTERN = re.compile(
    r"(?:%\|[^|]{0,300}\|\s{0,9}\d{1,10}/\d{1,10}|\d{1,10}it) \[[^\[\]]{0,2000}\]"
)


class _Bar(NamedTuple):
    line: int
    text: str
    step: int
    total: int
    epoch: float
    """Epoch in the description, NaN without one."""


class ProgressBars:
    """The progress bars of a text. Those with metrics become rows, the last one of each step."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._texts: deque[str] = deque(maxlen=MAX_KEPT_BARS)
        self._bar: _Bar | None = None
        """The newest bar with metrics."""
        self._cells: list[tuple[str, str]] = []
        """Metrics of the last row."""

    def keep(self, text: str) -> None:
        """Remember a bar for the rows that follow it."""
        self._texts.append(text)

    def take(self, line: int, text: str) -> None:
        """Take a text that consists of bars, and read the metrics of the last one."""
        self.keep(text)
        counter = _counter(text) if _METRIC_PATTERN.search(text) else None
        if counter is None:
            return
        text = text[-MAX_LINE_CHARACTERS:]
        description = _description(text)
        position = find_position(description) if may_name_step(description) else TrainingPosition(None)
        step, total = counter if position.step is None else (position.step, position.total or 0)
        bar = _Bar(line, text, step, total, math.nan if position.epoch is None else position.epoch)
        if self._bar is not None and self._bar[2:] != bar[2:]:
            self.end()
        self._bar = bar

    def end(self) -> None:
        """Add the newest bar as a row."""
        if self._bar is None:
            return
        text = without_types(self._bar.text)
        cells = pairs(_description(text)) + pairs(text[text.rfind("[") :])
        is_repeated = self._bar.step == self._bar.total and cells == self._cells  # tqdm leaves the last bar
        self._cells = cells
        if cells and not is_repeated:
            hint = StepHint(self._bar.step, total=self._bar.total, epoch=self._bar.epoch)
            self._rows.add(self._bar.line, cells, hint)
        self._bar = None

    def counters(self) -> tuple[tuple[int, int], ...]:
        """Return the newest (count, total) of each total."""
        newest: dict[int, int] = {}
        for text in reversed(self._texts):
            if (counter := _counter(text)) is not None:
                newest.setdefault(counter[1], counter[0])
        return tuple((count, total) for total, count in newest.items())


def has_bar(text: str) -> bool:
    """Return whether a text contains a progress bar, with or without a total."""
    return "%|" in text or ("it [" in text and _START_PATTERN.search(text) is not None)


def split_after_bar(text: str) -> tuple[str, str]:
    """Return the progress bars of a text, and what was printed after the last one without a line break."""
    if text.endswith("]"):
        return text, ""
    end = max((match.end() for match in _WHOLE_BAR_PATTERN.finditer(text)), default=len(text))
    return text[:end], text[end:].strip()


def _description(text: str) -> str:
    """Return the text between the last bar and the one before it."""
    starts = [match.start() for match in _START_PATTERN.finditer(text)] or [0]
    end_of_previous = text.rfind("]", 0, starts[-1]) + 1 if len(starts) > 1 else 0
    return text[end_of_previous : starts[-1]].rstrip(": ")


def _counter(text: str) -> tuple[int, int] | None:
    """Return (count, total) of the last bar in a text, with a total of 0 if it has none."""
    counters = _COUNTER_PATTERN.findall(text[-MAX_COUNTER_CHARACTERS:])
    return (int(counters[-1][0]), int(counters[-1][1] or 0)) if counters else None
