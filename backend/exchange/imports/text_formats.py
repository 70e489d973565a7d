"""Generic text logs: CSV with a header, and JSONL with an object a line."""

import csv
from collections.abc import Iterator
from typing import IO, Any

from backend.exchange.imports.charts import chart_columns, from_charts
from backend.exchange.imports.lines import document, parse, text_lines
from backend.exchange.imports.log import Log
from backend.exchange.imports.log_file import LogFile
from backend.exchange.imports.runs import LABELS, split_runs
from backend.exchange.imports.table import MAX_COLUMNS, BadLog, Table, flat, shown

DELIMITERS = ",;\t|"
CELL_CHARACTERS = 1_000_000
MAX_LABEL = 200

_SERVICE = {"_step", "_timestamp", "_runtime"}
"""Columns that only W&B writes."""


def delimiter_of(header: str) -> str | None:
    """Separator of the columns of a header; None if there is none."""
    best = max(DELIMITERS, key=header.count)
    return best if best in header else None


def read_csv(file: LogFile) -> list[Log]:
    """A table with a header, a log for each of its runs. Rows of another width are left out and named."""
    lines = text_lines(file.content)
    first = next(lines, (0, ""))[1]
    delimiter = delimiter_of(first) or ","
    reader = csv.reader(_chain(first, lines), delimiter=delimiter, strict=True)
    table = Table(file.most_values)
    csv.field_size_limit(CELL_CHARACTERS)
    try:
        header = _checked_header(next(reader, []))
        labels = [
            (header.index(name), table.labels.setdefault(name, [])) for name in LABELS if name in header
        ]
        for row in reader:
            if len(row) == len(header):
                table.add(reader.line_num, zip(header, row, strict=True))
                for column, texts in labels:
                    texts.append(row[column])
            elif row:
                table.bad.add(reader.line_num, f"has {len(row)} cells, the header has {len(header)}")
    except csv.Error as error:
        raise BadLog(f"is not CSV: line {reader.line_num}: {error}") from None
    if charts := chart_columns(header):
        return [from_charts(table, charts)]
    return split_runs(Log(table, origin="wandb" if len(_SERVICE & set(header)) > 1 else ""))


def _chain(first: str, lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    yield first
    for _, line in lines:
        yield line


def _checked_header(cells: list[str]) -> list[str]:
    if len(cells) > MAX_COLUMNS:
        raise BadLog(f"has more than {MAX_COLUMNS:,} columns")
    names = [cell.strip() for cell in cells]
    if not names or not any(names):
        raise BadLog("is empty")
    if twice := next((name for name in names if name and names.count(name) > 1), None):
        raise BadLog(f"has two columns of the name {shown(twice)}")
    if all(_is_number(name) for name in names):
        raise BadLog("has no header: expected names of columns in its first line, got numbers")
    return names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_jsonl(file: LogFile) -> list[Log]:
    """An object a line, or a list of objects; a log for each run. Nested names are joined by `/`."""
    table = Table(file.most_values)
    for line, row in records(file.content, table):
        for name in LABELS:
            if name in row:
                texts = table.labels.setdefault(name, [""] * len(table))
                texts.append(_label(row[name]))
        table.add(line, flat(row))
        for texts in table.labels.values():
            texts.extend([""] * (len(table) - len(texts)))
    return split_runs(Log(table, origin="wandb" if len(_SERVICE & table.columns.keys()) > 1 else ""))


def _label(value: Any) -> str:
    return "" if value is None or isinstance(value, dict | list) else str(value)[:MAX_LABEL]


def records(file: IO[bytes], table: Table) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of each line that holds one; others are named in the table's bad lines."""
    file.seek(0)
    if file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        rows = document(file)
        for number, row in enumerate(rows, 1):
            if isinstance(row, dict):
                yield 0, row
            else:
                table.bad.add(0, f"item {number} is not an object")
        return
    for line, text in text_lines(file):
        if not text.strip():
            continue
        try:
            row = parse(text)
        except ValueError as error:
            table.bad.add(line, f"is not JSON ({error})")
            continue
        if isinstance(row, dict):
            yield line, row
        else:
            table.bad.add(line, "is not a JSON object")
