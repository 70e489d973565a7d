"""Tables of logged values, into which every format is read, in the order of the log."""

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_POINTS = 2_000_000
MAX_COLUMNS = 2_000
MAX_NAME_CHARACTERS = 512
"""Maximum number of characters of a column's name."""
MAX_NUMBER_CHARACTERS = 40
"""Maximum number of characters of a number with a sign or a unit."""
MAX_SHOWN = 20
"""Maximum number of bad lines that a report lists."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_TRUTHS = {"true": 1.0, "false": 0.0}
MINUS_SIGN = "\N{MINUS SIGN}"
"""Sign of negative numbers in typeset tables."""
_MISSING = ("", "null", "none", "na", "n/a", "<na>", "-", "--", "\u2013", "\u2014")


class BadLog(ValueError):
    """A file that cannot be imported; the message is a sentence whose subject is the file."""


class TooMany(BadLog):
    """A limit of the whole import is exceeded: the archive is refused, and reading stops."""


class TooManyColumns(BadLog):
    """A run has more metrics than are stored."""


def too_many_values() -> TooMany:
    """Return the error for a log with too many values for an import."""
    return TooMany(f"holds more than {MAX_POINTS:,} values; that is the limit of one import")


def _too_many_rows() -> TooMany:
    return TooMany(f"holds more than {MAX_POINTS:,} rows; that is the limit of one import")


class BadLine(NamedTuple):
    """A line, or a value in it, that is left out."""

    line: int
    """Line of the file, starting at 1; 0 if the format has no lines."""
    reason: str


class BadLines:
    """Counts all bad lines and keeps the first ones."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[BadLine] = []

    def add(self, line: int, reason: str) -> None:
        """Count a bad line."""
        self.count += 1
        if len(self.first) < MAX_SHOWN:
            self.first.append(BadLine(line, reason))


@dataclass
class Column:
    """Numbers of a column, each with its row."""

    rows: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))
    texts: int = 0
    """Number of cells that do not contain a number."""
    example: str = ""
    """The first of these cells."""

    def numbers(self) -> tuple[Ints, Floats]:
        """Return (rows, values) as arrays."""
        return np.frombuffer(self.rows, np.int64), np.frombuffer(self.values, np.float64)


class Table:
    """Rows of named values. `limit` applies to the number of rows, which may be empty, and of values."""

    def __init__(self, limit: int = MAX_POINTS) -> None:
        self.columns: dict[str, Column] = {}
        self.lines = array("q")
        """Line of the file for each row."""
        self.bad = BadLines()
        self.labels: dict[str, list[str]] = {}
        """Columns that distinguish runs, with a text for each row."""
        self.points = 0
        """Number of values of all columns."""
        self._limit = limit

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def size(self) -> int:
        """The number of values, or of rows if that is larger; the limit of an import applies to both."""
        return max(self.points, len(self.lines))

    def add(self, line: int, cells: Iterable[tuple[str, Any]]) -> None:
        """Add a row. Missing values are skipped; cells that are not numbers are counted."""
        row = len(self.lines)
        self.lines.append(line)
        for name, value in cells:
            column = self.columns.get(name)
            if column is None:
                column = self.column(name)
            number = value if type(value) is float else number_in(name, value)
            if number is not None:
                column.rows.append(row)
                column.values.append(number)
                self.points += 1
            elif not _is_missing(value):
                self._add_text(column, name, line, value)
        self._check_size()

    def _check_size(self) -> None:
        if self.points > self._limit:
            raise too_many_values()
        if len(self.lines) > self._limit:
            raise _too_many_rows()

    def _add_text(self, column: Column, name: str, line: int, value: Any) -> None:
        column.texts += 1
        column.example = column.example or excerpt(value)
        if column.values:  # a word in a column of numbers
            self.bad.add(line, f"{excerpt(name)} is {excerpt(value)}, expected a number")

    def column(self, name: str) -> Column:
        """Return the column of this name; create it if it does not exist."""
        if name not in self.columns:
            if len(self.columns) >= MAX_COLUMNS:
                raise TooManyColumns(f"has more than {MAX_COLUMNS:,} columns")
            if len(name) > MAX_NAME_CHARACTERS:
                raise BadLog(f"has a column whose name has {len(name):,} characters: {excerpt(name)}")
            self.columns[name] = Column()
        return self.columns[name]

    def extend(self, name: str, rows: Ints, values: Floats) -> None:
        """Add many values of a column; their rows must exist."""
        column = self.column(name)
        column.rows.frombytes(rows.astype(np.int64).tobytes())
        column.values.frombytes(values.astype(np.float64).tobytes())
        self.points += len(rows)
        self._check_size()

    def keep_values(self, name: str, is_kept: NDArray[np.bool_]) -> None:
        """Delete the values of a column that a mask excludes; the rows stay."""
        column = self.columns[name]
        rows, values = column.numbers()
        self.points -= len(rows) - int(is_kept.sum())
        column.rows = array("q", rows[is_kept].tobytes())
        column.values = array("d", values[is_kept].tobytes())

    def append(self, table: "Table") -> None:
        """Append all rows of another table."""
        first = len(self.lines)
        self._limit += table.size  # these were counted when they were read
        self.lines.extend(table.lines)
        for name, column in table.columns.items():
            rows, values = column.numbers()
            self.extend(name, rows + first, values)
            own_column = self.columns[name]
            own_column.texts, own_column.example = (
                own_column.texts + column.texts,
                own_column.example or column.example,
            )
        self.bad.count += table.bad.count
        self.bad.first = [*self.bad.first, *table.bad.first][:MAX_SHOWN]

    def reorder(self, order: Ints) -> None:
        """Rearrange the rows; `order` contains the current index of each new row."""
        new_rows = np.empty(len(self), np.int64)
        new_rows[order] = np.arange(len(self))
        self.lines = array("q", np.asarray(self.lines, np.int64)[order].tobytes())
        for column in self.columns.values():
            rows, values = column.numbers()
            column_order = np.argsort(new_rows[rows], kind="stable")
            column.rows = array("q", new_rows[rows][column_order].tobytes())
            column.values = array("d", values[column_order].tobytes())


def as_number(value: Any) -> float | None:
    """Return the number in a cell, including NaN and the infinities; None if there is none."""
    kind = type(value)
    if kind is float:
        return value  # type: ignore[no-any-return]
    if kind is int or kind is bool:
        try:
            return float(value)
        except OverflowError:
            return None
    return _from_text(value) if kind is str else None


def _from_text(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return _TRUTHS.get(text.strip().lower())
    return None if "_" in text else number


def _is_missing(value: Any) -> bool:
    return value is None or (type(value) is str and value.strip().lower() in _MISSING)


def excerpt(value: Any) -> str:
    """Return the beginning of a value, quoted."""
    text = value if isinstance(value, str) else _in_short(value)
    text = text if len(text) <= 40 else text[:37] + "..."
    return repr(text) if isinstance(value, str) else text


def _in_short(value: Any) -> str:
    type_names = {dict: "an object", list: "a list", int: "a number that is too large"}
    return type_names.get(type(value), str(value))


def is_whole(values: Floats) -> NDArray[np.bool_]:
    """Return the mask of whole numbers from 0 to below 2^31 - 1, which can be steps."""
    with np.errstate(invalid="ignore"):
        return np.asarray((values >= 0) & (values < 2**31 - 1) & (np.floor(values) == values))


_COUNTER_PATTERN = re.compile(
    r"(?:^|[/_ ])(?:(?:max_)?steps?|iter(?:ation)?|updates?|episode|epoch|checkpoint)$", re.IGNORECASE
)
_COUNT_PATTERN = re.compile(
    r"\s*(?:(?:checkpoint|ckpt|(?:global_)?step|iter(?:ation)?)[-_ ]?)?(\d{1,10})(?:\s*/\s*\d{1,10})?\s*",
    re.IGNORECASE,
)
_THOUSANDS_PATTERN = re.compile(r"\s*(\d{1,6}(?:\.\d{1,3})?)\s?[kK]\s*")
_GROUPED_PATTERN = re.compile(r"\s*[-+]?\d{1,3}(?:,\d{3}){1,6}(?:\.\d{1,12})?\s*")
_PERCENT_PATTERN = re.compile(r"\s*([-+]?\d{1,9}(?:\.\d{1,12})?)\s?%\s*")
_SHARE_PATTERN = re.compile(r"\s*(\d{1,9})\s?/\s?([1-9]\d{0,9})\s*")
_SHARE_NAME_PATTERN = re.compile(
    r"acc(?:uracy)?(?![a-z])|correct|pass|solve|success|rate(?![a-z])", re.IGNORECASE
)
"""Pattern of names of columns whose cells `12/100` are shares."""
_SCALED_PATTERN = re.compile(r"\s*(\d{1,9}(?:\.\d{1,6})?)\s?([kKMBGT])\s*")
_FACTOR_BY_UNIT = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


def number_in(column: str, value: Any) -> float | None:
    """Return the number in a cell, also of `1,234`, `78.5%`, tokens `38.5B`, step or accuracy `3/40`."""
    number = as_number(value)
    if number is not None or type(value) is not str or len(value) > MAX_NUMBER_CHARACTERS:
        return number
    if MINUS_SIGN in value:
        return number_in(column, value.replace(MINUS_SIGN, "-"))
    if _GROUPED_PATTERN.fullmatch(value):
        return float(value.replace(",", ""))
    if match := _PERCENT_PATTERN.fullmatch(value):
        return float(match[1]) / 100
    if _COUNTER_PATTERN.search(column) is None:
        return _share(value) if _SHARE_NAME_PATTERN.search(column) else _scaled(column, value)
    if match := _COUNT_PATTERN.fullmatch(value):
        return float(match[1])
    match = _THOUSANDS_PATTERN.fullmatch(value)
    return float(round(1000 * float(match[1]))) if match else None


def _share(value: str) -> float | None:
    match = _SHARE_PATTERN.fullmatch(value)
    return int(match[1]) / int(match[2]) if match and int(match[1]) <= int(match[2]) else None


def _scaled(column: str, value: str) -> float | None:
    match = _SCALED_PATTERN.fullmatch(value) if "token" in column.lower() else None
    return float(match[1]) * _FACTOR_BY_UNIT[match[2]] if match else None


def flatten_cells(document: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterable[tuple[str, Any]]:
    """Yield the cells of a nested row: {"train": {"loss": 1}} contains `train/loss`. Lists stay unchanged."""
    for key, value in document.items():
        name = f"{prefix}/{key}" if prefix else key
        if type(value) is dict and depth < 4:
            yield from flatten_cells(value, name, depth + 1)
        else:
            yield name, value
