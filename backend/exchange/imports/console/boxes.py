"""Metrics in printed boxes, such as the panels of open-instruct and RLinf, of which a line names the step."""

import re

from backend.exchange.imports.console.forms import NUMBER, TrainingPosition, find_position, may_name_step

_CELL_PATTERN = re.compile(
    r"(?:^|[│|])\s*(?:(?P<group>[\w-]{1,40})\s{2,40}(?=[\w./@-]{1,200}:))?(?P<name>[A-Za-z_][\w./@-]{0,199})"
    rf"\s?[=:]\s?(?P<number>{NUMBER})\s*(?=[│|]|$)"
)
_UNGROUPED = "other"
"""Group of open-instruct for names without a slash."""


def is_top(text: str) -> bool:
    """Return whether a line is the upper edge of a box."""
    return text.lstrip()[:1] in {"╭", "┌"}


def is_bottom(text: str) -> bool:
    """Return whether a line is the lower edge of a box."""
    return text.lstrip()[:1] in {"╰", "└"}


class Box:
    """The metrics of a box, and the step that one of its lines names."""

    def __init__(self) -> None:
        self.cells: list[tuple[str, str]] = []
        self.position = TrainingPosition(None)
        self.lines = 0
        self._group = ""

    def take_line(self, text: str) -> bool:
        """Return whether a line in the box has metrics or the step."""
        cells = list(_CELL_PATTERN.finditer(text.strip().strip("│")))
        for match in cells:
            self._group = match["group"] or self._group
            is_grouped = self._group not in {"", _UNGROUPED}
            name = f"{self._group}/{match['name']}" if is_grouped else match["name"]
            self.cells.append((name, match["number"]))
        position = find_position(text) if may_name_step(text) else TrainingPosition(None)
        if position.step is not None:
            self.position = position
        self.lines += 1
        return bool(cells) or position.step is not None
