"""Metrics in printed boxes, such as the panels of open-instruct and RLinf, of which a line names the step."""

import re

from backend.exchange.imports.console.forms import NUMBER, TrainingPosition, find_position, may_name_step
from backend.exchange.imports.names import is_known

MIN_KNOWN_NAMES = 2
"""Minimum number of known metrics in a box, which tells it from a printed completion."""
_CELL_PATTERN = re.compile(
    r"(?:(?P<group>[\w-]{1,40})\s{2,40})?(?P<name>[A-Za-z_][\w./@-]{0,79}(?: [A-Za-z][\w./@-]{0,39}){0,3})"
    rf"\s?[=:]\s{{0,12}}(?P<number>{NUMBER})"
)
_STEP_PATTERN = re.compile(
    r"(?:^|[│|])\s*(?:[\w-]{1,40}\s{2,40})?(?:(?:global|train|training)?[ _]?step|iteration)",
    re.IGNORECASE,
)
_SEPARATOR_PATTERN = re.compile(r"[│|]")
_UNGROUPED = "other"
"""Group of open-instruct for names without a slash."""


def is_top(text: str) -> bool:
    """Return whether a line is the upper edge of a box."""
    return text.lstrip()[:1] in {"╭", "┌"}


def is_bottom(text: str) -> bool:
    """Return whether a line is the lower edge of a box."""
    return text.lstrip()[:1] in {"╰", "└"}


class Box:
    """The metrics of a box, and the step that one of its lines names first."""

    def __init__(self, top: str) -> None:
        self.is_titled = may_name_step(top)
        """Whether the edge names the step, as that of TRL's completions, in which other steps are text."""
        self.cells: list[tuple[str, str]] = []
        self.step: int | None = None
        self.lines = 0
        """Number of lines with metrics or the step."""
        self._other_lines = 0
        self._group = ""

    def take_line(self, text: str) -> None:
        """Take the metrics and the step of a line in the box."""
        segments = [segment.strip() for segment in _SEPARATOR_PATTERN.split(text)]
        cells = [match for segment in segments if (match := _CELL_PATTERN.fullmatch(segment))]
        for match in cells:
            self._group = match["group"] or self._group
            is_grouped = self._group not in {"", _UNGROUPED}
            name = f"{self._group}/{match['name']}" if is_grouped else match["name"]
            self.cells.append((name, match["number"]))
        position = TrainingPosition(None)
        if self.step is None and may_name_step(text) and (cells or _STEP_PATTERN.search(text)):
            position = find_position(text)
            self.step = position.step
        if cells or position.step is not None:
            self.lines += 1
        elif any(segments):
            self._other_lines += 1

    @property
    def has_metrics(self) -> bool:
        """Whether the box contains mainly metrics, of a step that it names."""
        known_names = {name for name, _ in self.cells if is_known(name)}
        return (
            not self.is_titled
            and self.step is not None
            and self.lines > self._other_lines
            and len(known_names) >= MIN_KNOWN_NAMES
        )
