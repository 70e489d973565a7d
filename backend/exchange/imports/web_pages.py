"""Notebooks and web pages: read their tables and printed lines. Nothing in them is executed."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

from backend.exchange.imports.console.read import ConsoleText
from backend.exchange.imports.console.terminal import pieces_of_text
from backend.exchange.imports.console.trainings import logs_of_text
from backend.exchange.imports.lines import document
from backend.exchange.imports.log import Log
from backend.exchange.imports.log_file import LogFile
from backend.exchange.imports.table import MAX_COLUMNS, BadLog

MAX_PAGE_BYTES = 50_000_000
MAX_CELL_CHARACTERS = 1_000
"""Maximum number of characters of a cell; the rest is dropped."""
_ELEMENT_PATTERN = re.compile(
    r"<(?P<end>/?)(?P<name>table|tr|td|th|script|style)\b[^<>]{0,2000}>", re.IGNORECASE
)
_TAG_PATTERN = re.compile(r"<[^<>]{0,500}>")


class _Tables:
    """Adds the rows of a page's tables, in order, to a text.

    Only the tags of tables are searched for, each within a bounded length, because the time of `html.parser`
    is quadratic for a malicious page.
    """

    def __init__(self, text: ConsoleText, line: int) -> None:
        self._into = text
        self._line = line
        self._row: list[str] | None = None
        self._begin: int | None = None

    def read(self, page: str) -> None:
        """Read all rows of a page."""
        hidden_element = ""
        for tag in _ELEMENT_PATTERN.finditer(page):
            name = tag["name"].lower()
            if hidden_element or name in {"script", "style"}:
                hidden_element = "" if tag["end"] and name == hidden_element else hidden_element or name
                continue
            if self._row is not None and self._begin is not None and len(self._row) < MAX_COLUMNS:
                self._row.append(_text(page[self._begin : tag.start()]))
            self._begin = tag.end() if name in {"td", "th"} and not tag["end"] else None
            if name in {"tr", "table"}:
                self._end_row()
                self._row = [] if name == "tr" and not tag["end"] else None
        self._end_row()

    def _end_row(self) -> None:
        if self._row:
            self._into.tables.take_cells(self._line, self._row)
        self._row = None


def _text(cell: str) -> str:
    return unescape(_TAG_PATTERN.sub("", cell[:MAX_CELL_CHARACTERS])).strip()


def read_html(file: LogFile) -> list[Log]:
    """Read a page's tables of metrics, as shown by Trainer in a notebook, or else its text; raise BadLog."""
    file.content.seek(0)
    content = file.content.read(MAX_PAGE_BYTES + 1)
    if len(content) > MAX_PAGE_BYTES:
        raise BadLog(f"is one HTML page of more than {MAX_PAGE_BYTES:,} bytes")
    text = ConsoleText(file.max_values)
    take_html(text, content.decode("utf-8-sig", errors="replace"))
    if not any(map(len, text.forms.values())):
        raise BadLog("is an HTML page without a table of metrics by step")
    return logs_of_text(text)


def take_html(text: ConsoleText, page: str, line: int = 0) -> None:
    """Add the rows of the tables of a page."""
    _Tables(text, line).read(page)


def read_notebook(file: LogFile) -> list[Log]:
    """Read tables and printed lines in the outputs of a Jupyter notebook; raise BadLog."""
    notebook = document(file.content)
    if not isinstance(notebook, dict):
        raise BadLog("is not a notebook: expected an object with cells")
    text = ConsoleText(file.max_values)
    for number, output in enumerate(_outputs(notebook), 1):
        data = output.get("data")
        data = data if isinstance(data, dict) else {}
        page = _join_lines(data.get("text/html"))
        if "<td" in page:
            take_html(text, page, number)
        else:
            text.read(pieces_of_text(_join_lines(output.get("text", data.get("text/plain")))))
    text.end()
    if not any(map(len, text.forms.values())):
        raise BadLog("is a notebook whose outputs hold no metrics: run it, and save it with its outputs")
    return logs_of_text(text)


def _outputs(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    worksheets = notebook.get("worksheets")
    sections = [notebook, *(worksheets if isinstance(worksheets, list) else [])]
    for section in sections:
        cells = section.get("cells") if isinstance(section, dict) else None
        for cell in cells if isinstance(cells, list) else []:
            outputs = cell.get("outputs") if isinstance(cell, dict) else None
            for output in outputs if isinstance(outputs, list) else []:
                if isinstance(output, dict):
                    yield output


def _join_lines(lines: Any) -> str:
    if isinstance(lines, str):
        return lines
    return "".join(line for line in lines if isinstance(line, str)) if isinstance(lines, list) else ""
