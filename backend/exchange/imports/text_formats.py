"""Generic text logs: CSV with a header, and JSONL with an object on each line."""

import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import IO, Any, NamedTuple

from backend.config.metrics import ALIASES, LOGGER_PREFIXES
from backend.exchange.imports.charts import chart_columns, from_charts
from backend.exchange.imports.console.evaluations import tag_of_labels
from backend.exchange.imports.console.forms import is_rule
from backend.exchange.imports.console.read import OBJECTS, ConsoleText
from backend.exchange.imports.console.rows import NO_STEP, Rows, StepHint
from backend.exchange.imports.console.terminal import read_segments
from backend.exchange.imports.console.trainings import logs_of_text
from backend.exchange.imports.console.trust import move_evaluations, resolve_tags
from backend.exchange.imports.guess import is_step_name, read_steps, step_candidates
from backend.exchange.imports.lines import MAX_LINE_BYTES, BrokenDocument, document, parse, text_lines
from backend.exchange.imports.log import Log, LogMetadata
from backend.exchange.imports.log_file import LogFile
from backend.exchange.imports.names import is_known
from backend.exchange.imports.runs import LABELS, split_runs
from backend.exchange.imports.splits import SPLITS, is_split_name
from backend.exchange.imports.table import (
    MAX_COLUMNS,
    MAX_NAME_CHARACTERS,
    BadLog,
    Table,
    excerpt,
    flatten_cells,
)

DELIMITERS = ",;\t|"
MAX_CELL_CHARACTERS = 1_000_000
MAX_LABEL_CHARACTERS = 200
MAX_LONG_COLUMNS = 12
_METRIC_NAME_COLUMNS = ("key", "metric", "metric_name", "metricname", "tag", "name")
"""Columns for the name of a metric, in tables with one value per row."""
_METRIC_VALUE_COLUMNS = ("value", "metric_value", "metricvalue")
_STEP_KEY_PATTERN = re.compile(
    r"(?:(?:global_)?step|iter|iteration|round|epoch)?[ _-]?(\d{1,9})", re.IGNORECASE
)
_DATE_PATTERN = re.compile(r"\d{4}-\d\d-\d\d")
_PRINTED_TEXT_PATTERN = re.compile(r"[={}]|: \S|[A-Za-z] [-+]?\d+\.\d")
"""Matches characters of printed lines that column names do not contain."""
_DECIMAL_COMMA_PATTERN = re.compile(r"\s*[-+]?\d{1,20},\d{1,20}(?:[eE][-+]?\d{1,3})?\s*%?")
_TENSORBOARD_COLUMNS = {"wall time", "step", "value"}
_TENSORBOARD_ITEM = ("Wall time", "Step", "Value")
"""Names of the three numbers of each item in a JSON export."""
_METRIC_BY_FILE_NAME = {
    f"{prefix}{alias}".replace("/", "_").lower(): f"{prefix}{alias}"
    for alias in ALIASES
    for prefix in ("", *LOGGER_PREFIXES)
}
"""Metric names by their form in file names."""

_WANDB_COLUMNS = {"_step", "_timestamp", "_runtime"}
"""Columns that only W&B writes."""


def find_delimiter(header: str) -> str | None:
    """Return the column separator of a header; None if it has none."""
    most_frequent = max(DELIMITERS, key=header.count)
    return most_frequent if most_frequent in header else None


def is_csv(header: str, rows: str) -> bool:
    """Return whether a text begins with a header of names and a row of as many cells with a number."""
    delimiter = find_delimiter(header)
    is_markdown = header.strip()[:1] == header.strip()[-1:] == "|"
    if delimiter is None or "\r" in header.rstrip() or is_markdown:
        return False
    names = _cells(header, delimiter)
    if any(
        _PRINTED_TEXT_PATTERN.search(name) or _is_date(name) or len(name) > MAX_NAME_CHARACTERS
        for name in names
    ):
        return False
    row = next((line for line in rows.splitlines() if line.strip()), "")
    cells = _cells(row, delimiter)
    if not cells:
        return True
    if is_rule(row):
        return False  # Markdown
    if any(_is_number(cell) or _is_date(cell) for cell in cells):
        return True
    return len(cells) == len(names) and (cells[0] == "" or not any(" " in name for name in names))


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter), [])]
    except csv.Error:
        return line.split(delimiter)


def read_csv(file: LogFile) -> list[Log]:
    """Read a table with a header and return a log for each run; rows of a different width are bad lines."""
    lines = text_lines(file.content)
    first = next(lines, (0, ""))[1]
    delimiter = find_delimiter(first) or ","
    reader = csv.reader(_chain(first, lines), delimiter=delimiter, strict=True)
    table = Table(file.max_values)
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    try:
        header = _checked_header(next(reader, []))
        names = [name.lower() if is_split_name(name) else name for name in header]
        labels = [
            (names.index(name), table.labels.setdefault(name, []))
            for name in (*LABELS, *SPLITS)
            if name in names
        ]
        named_values = long_form(header)
        for row in reader:
            if len(row) == len(header):
                cells = zip(header, _with_decimal_points(row) if delimiter == ";" else row, strict=True)
                table.add(reader.line_num, named_values.cells(dict(cells)) if named_values else cells)
                for column, texts in labels:
                    texts.append(row[column])
            elif row:
                table.bad.add(reader.line_num, f"has {len(row)} cells, the header has {len(header)}")
    except csv.Error as error:
        raise BadLog(f"is not CSV: line {reader.line_num}: {error}") from None
    if charts := chart_columns(header):
        return from_charts(table, charts, header[0])
    if set(map(str.lower, header)) == _TENSORBOARD_COLUMNS:
        return [_named_by_file(table, header, file.name)]
    _move_evaluations(table)
    return split_runs(Log(table, origin="wandb" if len(_WANDB_COLUMNS & set(header)) > 1 else ""))


def _move_evaluations(table: Table) -> None:
    """Move the values of rows that a column such as `split` calls an evaluation to columns of their own."""
    labels = {name: texts for name, texts in table.labels.items() if name in SPLITS}
    if not labels:
        return
    step_columns = step_candidates(table)[:1]
    steps = read_steps(table, step_columns[0]).tolist() if step_columns else [NO_STEP] * len(table)
    rows = Rows.of_table(table)
    for step, texts in zip(steps, zip(*labels.values(), strict=True), strict=True):
        word, suite = tag_of_labels(zip(labels, texts, strict=True)) or ("", "")
        rows.hints.append(StepHint(step, tag=word, suite=suite))
    resolve_tags(rows)
    move_evaluations(table, rows.hints)


def _with_decimal_points(row: list[str]) -> list[str]:
    """Return a row with decimal points instead of decimal commas."""
    if any("." in cell and _is_number(cell) for cell in row):
        return row
    return [
        cell.replace(",", ".") if "," in cell and _DECIMAL_COMMA_PATTERN.fullmatch(cell) else cell
        for cell in row
    ]


class LongForm(NamedTuple):
    """The name and value columns of a table with one value per row, such as an export of MLflow."""

    key: str
    value: str

    def cells(self, row: dict[str, Any]) -> list[tuple[str, Any]]:
        """Return the cells of a row, with its value under the name of its metric."""
        other_cells = [(name, value) for name, value in row.items() if name not in {self.key, self.value}]
        name = row.get(self.key)
        return [*other_cells, (name, row.get(self.value))] if isinstance(name, str) and name else other_cells


def long_form(names: Iterable[str]) -> LongForm | None:
    """Return the name and value columns of a table with one value per row; None for any other table."""
    by_lower = {name.lower(): name for name in names}
    key = next((by_lower[name] for name in _METRIC_NAME_COLUMNS if name in by_lower), None)
    value = next((by_lower[name] for name in _METRIC_VALUE_COLUMNS if name in by_lower), None)
    has_step_column = any(is_step_name(name) for name in by_lower)
    if key is None or value is None or not has_step_column or len(by_lower) > MAX_LONG_COLUMNS:
        return None
    return LongForm(key, value)


def _named_by_file(table: Table, header: list[str], file: str) -> Log:
    """Return the curve of a TensorBoard export, whose run and tag are only in the file name."""
    run, _, tag = PurePath(file).stem.rpartition("-tag-")
    value = next(name for name in header if name.lower() == "value")
    if value in table.columns:
        table.columns[_METRIC_BY_FILE_NAME.get(tag.lower(), tag or "value")] = table.columns.pop(value)
    if time := next((name for name in header if name.lower() == "wall time"), None):
        table.columns["wall_time"] = table.columns.pop(time)
    name = run.removeprefix("run-")
    return Log(table, LogMetadata(name=name), origin="tensorboard")


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
    if duplicate := next((name for name in names if name and names.count(name) > 1), None):
        raise BadLog(f"has two columns of the name {excerpt(duplicate)}")
    if all(_is_number(name) for name in names):
        raise BadLog("has no header: expected names of columns in its first line, got numbers")
    return names


def _is_date(text: str) -> bool:
    return _DATE_PATTERN.match(text) is not None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_jsonl(file: LogFile) -> list[Log]:
    """Read one object per line, or a list of objects, and return a log for each run. / joins nested names."""
    try:
        logs = _read_objects(file)
    except BrokenDocument as error:
        return read_broken(file, file.content, error)
    if logs[0].table.bad.count >= sum(len(log.table) for log in logs):
        text = ConsoleText(file.max_values)  # printed output that begins with an object, such as a config
        text.read(read_segments(file.content))
        if any(rows.known_values for rows in text.forms.values()):
            return logs_of_text(text)
    return logs


def read_broken(file: LogFile, content: IO[bytes], error: BrokenDocument) -> list[Log]:
    """Read the complete objects of a truncated document or of several; raise the error if there are none."""
    text = ConsoleText(file.max_values)
    text.read(read_segments(content))
    if not text.forms[OBJECTS].known_values:
        raise error
    logs = logs_of_text(text)
    logs[0].metadata.notes.append(f"The file {error}. Its objects are read one by one.")
    return logs


def _read_objects(file: LogFile) -> list[Log]:
    table = Table(file.max_values)
    for line, row in records(file.content, table):
        for name in (*LABELS, *SPLITS):
            if name in row:
                texts = table.labels.setdefault(name, [""] * len(table))
                texts.append(_label(row[name]))
        named_values = long_form(row)
        table.add(line, named_values.cells(row) if named_values else flatten_cells(row))
        for texts in table.labels.values():
            texts.extend([""] * (len(table) - len(texts)))
    if set(table.columns) == set(_TENSORBOARD_ITEM):
        return [_named_by_file(table, list(_TENSORBOARD_ITEM), file.name)]
    _move_evaluations(table)
    return split_runs(Log(table, origin="wandb" if len(_WANDB_COLUMNS & table.columns.keys()) > 1 else ""))


def _label(value: Any) -> str:
    return "" if value is None or isinstance(value, dict | list) else str(value)[:MAX_LABEL_CHARACTERS]


def records(file: IO[bytes], table: Table, *, is_jsonl: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line number and object of each line; other lines are added to the table's bad lines.

    Unless `is_jsonl`, this also reads a document of several lines with a list of objects.
    """
    file.seek(0)
    if file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        yield from _items(document(file), table)
        return
    if not is_jsonl and (rows := _parse_single_document(file)) is not None:
        yield from _items(rows, table)
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


def _items(rows: list[Any], table: Table) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, row in enumerate(rows, 1):
        if isinstance(row, dict):
            yield 0, row
        elif _is_tensorboard_item(row):
            yield 0, dict(zip(_TENSORBOARD_ITEM, row, strict=True))
        else:
            table.bad.add(0, f"item {number} is not an object")


def _is_tensorboard_item(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 3 and all(type(cell) in {int, float} for cell in row)


def _parse_single_document(file: IO[bytes]) -> list[Any] | None:
    """Return the rows of a single document, a list or its columns; None if each line is an object."""
    file.seek(0)
    first = file.readline(MAX_LINE_BYTES)
    is_line = first.rstrip().endswith(b"}")
    if is_line and file.readline(MAX_LINE_BYTES).strip():
        return None
    parsed_document = document(file)
    if not isinstance(parsed_document, dict):
        return None
    for part in (parsed_document, *parsed_document.values()):
        if isinstance(part, dict) and (rows_by_step := _rows_by_step(part)):
            return rows_by_step
    parsed_document = _columns_of_pandas(parsed_document)
    lists = {name: value for name, value in parsed_document.items() if isinstance(value, list) and value}
    rows = [value for value in lists.values() if _is_list_of_rows(value)]
    if rows:
        return max(rows, key=len)
    for part in (
        parsed_document,
        *parsed_document.values(),
    ):  # such as {"config": .., "history": {"loss": [..]}}
        if isinstance(part, dict) and (rows_of_columns := _rows_of_columns(part)):
            return rows_of_columns
    return [parsed_document] if is_line else _find_inner_rows(parsed_document)


def _rows_of_columns(columns: dict[str, Any]) -> list[Any]:
    """Return the rows of the longest lists of a document, if they are columns of metrics."""
    lists = {name: value for name, value in columns.items() if isinstance(value, list) and value}
    length = max(map(len, lists.values()), default=0)
    longest = {name: value for name, value in lists.items() if len(value) == length > 1}
    if not any(map(is_known, longest)):
        return []
    return [dict(zip(longest, row, strict=True)) for row in zip(*longest.values(), strict=True)]


def _rows_by_step(parsed_document: dict[str, Any]) -> list[Any]:
    """Return the rows of `{"0": {"loss": 0.1}, "1": ...}` or of `{"step_1": ...}`, with their steps."""
    matches = [_STEP_KEY_PATTERN.fullmatch(key) for key in parsed_document]
    rows = list(parsed_document.values())
    if len(rows) < 2 or not all(matches) or not all(isinstance(row, dict) for row in rows):
        return []
    names = [name for name, _ in flatten_cells(rows[0])]
    if any(map(is_step_name, names)) or not any(map(is_known, names)):
        return []
    return [{"step": int(match[1])} | row for match, row in zip(matches, rows, strict=True) if match]


def _find_inner_rows(parsed_document: dict[str, Any]) -> list[Any]:
    """Return the only list of rows with steps within the objects of a document; raise BadLog otherwise."""
    rows_by_name: dict[str, list[Any]] = {
        name: value
        for name, value in flatten_cells(parsed_document)
        if _is_list_of_rows(value) and any(map(is_step_name, value[0]))
    }
    if len(rows_by_name) > 1:
        names = ", ".join(excerpt(name) for name in list(rows_by_name)[:3])
        raise BadLog(f"has several lists of metrics ({names}): import each as a file")
    for rows in rows_by_name.values():
        return rows
    raise BadLog("is one JSON document without a list of metrics")


def _columns_of_pandas(parsed_frame: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a pandas frame, by row number or with separate names; else the document."""
    names, rows = parsed_frame.get("columns"), parsed_frame.get("data")
    if isinstance(names, list) and isinstance(rows, list) and all(isinstance(row, list) for row in rows):
        return {
            str(name): [row[index] if index < len(row) else None for row in rows]
            for index, name in enumerate(names)
        }
    columns = parsed_frame.values()
    if columns and all(isinstance(column, dict) and len(column) > 1 and "0" in column for column in columns):
        return {name: list(column.values()) for name, column in parsed_frame.items()}
    return parsed_frame


def _is_list_of_rows(value: Any) -> bool:
    """Return whether a value is a list of objects with metrics."""
    row = value[0] if isinstance(value, list) and value else None
    return isinstance(row, dict) and (
        long_form(row) is not None or any(is_known(name) for name, _ in flatten_cells(row))
    )
