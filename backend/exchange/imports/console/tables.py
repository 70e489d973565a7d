"""Read printed tables of metrics: Markdown, grids, tabs, columns of spaces, and those of web pages."""

import re
from itertools import islice, pairwise

from backend.exchange.imports.console.evaluations import tag_of_labels
from backend.exchange.imports.console.forms import is_rule, table_cells, without_remark
from backend.exchange.imports.console.rows import Rows, StepHint, find_step
from backend.exchange.imports.guess import STEP_NAMES
from backend.exchange.imports.names import is_known, plain_name
from backend.exchange.imports.splits import is_split_name
from backend.exchange.imports.table import as_number, excerpt, number_in

LISTED = ("step", "iter", "epoc")
"""Prefixes of table headers with commas."""

_NUMBER_PATTERN = re.compile(r"[^\w@]*(?:\d(?:[eE](?=[-+]?\d))?[^\w@]*)+|[-+]?(?:nan|inf)", re.IGNORECASE)
"""Pattern of cells that cannot be the name of a column."""


class Tables:
    """Adds the rows of printed tables to `rows`."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._headers: list[list[str]] = []
        """Names of the columns of the current table, for each of its blocks side by side."""

    def take_line(self, line: int, text: str) -> bool:
        """Return whether a line is part of a table of metrics."""
        if self._headers and is_rule(text):
            return True
        is_list = bool(self._headers) or text.lstrip("# ")[:4].lower() in LISTED
        if not (is_list or "|" in text or "\t" in text or "┃" in text or "  " in text.strip()):
            self._headers = []
            return False
        return self.take_cells(line, table_cells(text))

    def take_cells(self, line: int, cells: list[str]) -> bool:
        """Return whether the cells are the header of a table of metrics or one of its rows.

        A table may have several blocks side by side, each with a header that begins with the same name.
        """
        width = sum(map(len, self._headers))
        if len(self._headers) == 1 and len(cells) == width + 1 and cells[0].isdecimal():
            cells = cells[1:]  # without the row number that pandas prints
        if width and len(cells) == width and self._take_row(line, cells):
            return True
        self._headers = _find_headers(cells)
        return bool(self._headers)

    def _take_row(self, line: int, cells: list[str]) -> bool:
        """Add a row of the table; return False, and add none, if its cells are those of another table.

        Blocks whose first cell is not a number, such as a row `base` or `mean`, are reported.
        """
        remaining_cells = iter(map(without_remark, cells))
        blocks = [(header, list(islice(remaining_cells, len(header)))) for header in self._headers]
        blocks = [(header, row) for header, row in blocks if any(cell.strip("- ") for cell in row[1:])]
        if not blocks:
            return True  # without values
        is_step = [_has_step(header, row) for header, row in blocks]
        if not any(is_step) and all(number_in("", cell) is None for cell in cells):
            return False
        for (header, row), has_step in zip(blocks, is_step, strict=True):
            if has_step:
                self._add_row(line, header, row)
            elif any(number_in("", cell) is not None for cell in row):
                reason = f"{excerpt(header[0])} is {excerpt(row[0])}, expected a number"
                self._rows.table.bad.add(line, reason)
        return True

    def _add_row(self, line: int, header: list[str], cells: list[str]) -> None:
        cells_by_name = {name: cell for name, cell in zip(header, cells, strict=True) if name}
        step, _ = find_step(
            {plain_name(name): number_in(name, cell) for name, cell in cells_by_name.items()}, ""
        )
        epoch = as_number(cells_by_name.get("epoch", cells_by_name.get("Epoch")))
        word, suite = tag_of_labels(cells_by_name.items()) or ("", "")
        hint = StepHint(step, epoch=float("nan") if epoch is None else epoch, tag=word, suite=suite)
        self._rows.add(line, cells_by_name.items(), hint)


def _has_step(header: list[str], row: list[str]) -> bool:
    """Return whether the first cell of a row is a number, or the second one after a label such as `train`."""
    index = int(is_split_name(header[0]))
    return number_in(header[index], row[index]) is not None


def _find_headers(cells: list[str]) -> list[list[str]]:
    """Return the names of the columns of each block, or none if the cells are no header of a table of
    metrics.

    Blocks side by side have the same names, or other names but for the first.
    """
    if len(cells) < 2 or any(len(cell) > 200 or _NUMBER_PATTERN.fullmatch(cell) for cell in cells):
        return []
    starts = [index for index, cell in enumerate(cells) if cell == cells[0]] if cells[0] else [0]
    headers = [cells[start:end] for start, end in pairwise([*starts, len(cells)])]
    blocks = {tuple(plain_name(cell) for cell in header if cell) for header in headers}
    names = [plain_name(cells[0]), *(name for block in blocks for name in block[1:])]
    is_step_column = names[0] in STEP_NAMES or names[0] in {"epoch", ""} or is_split_name(names[0])
    is_header = sum(map(is_known, names)) + is_step_column >= 2 and len(set(names)) == len(names)
    return list(map(_with_held_out_names, headers)) if is_header else []


def _with_held_out_names(header: list[str]) -> list[str]:
    """Return the names of the columns, in a notebook's table of Trainer with evaluations.

    Beside the losses of the training and of the evaluation, it shows metrics of the evaluation, without
    their prefix and with a capital letter.
    """
    if not {"Training Loss", "Validation Loss"} <= set(header):
        return header
    return [
        "eval_" + name.lower().removeprefix("validation ").replace(" ", "_")
        if name[:1].isupper() and name != "Training Loss" and plain_name(name) not in {"epoch", *STEP_NAMES}
        else name
        for name in header
    ]
