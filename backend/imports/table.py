"""Tables of logged values: what every format is read into, in the order in which the log was written."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.redaction import redact, redact_document

if TYPE_CHECKING:
    from backend.imports.completions import Completions

MOST_POINTS = 2_000_000
MOST_COLUMNS = 2_000
MOST_NAME = 512
"""Characters of a column's name."""
MOST_SHOWN = 20
"""Bad lines that a report names one by one."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_TRUTHS = {"true": 1.0, "false": 0.0}
_MISSING = ("", "null", "none", "na", "n/a", "<na>")


class BadLog(ValueError):
    """A file that cannot be imported; the sentence says why, with the file as its subject."""


class TooMany(BadLog):
    """A limit of the whole import is exceeded: an archive is refused with it, not read on."""


def too_many_values() -> TooMany:
    """The error of a log with more values than an import takes."""
    return TooMany(f"holds more than {MOST_POINTS:,} values; at most that many are imported at once")


def _too_many_rows() -> TooMany:
    return TooMany(f"holds more than {MOST_POINTS:,} rows; at most that many are imported at once")


class BadLine(NamedTuple):
    """A line, or a value in it, that is left out."""

    line: int
    """From 1; 0 where the format has no lines."""
    reason: str


class BadLines:
    """Counts everything that is left out and keeps the first of it."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[BadLine] = []

    def add(self, line: int, reason: str) -> None:
        """One more."""
        self.count += 1
        if len(self.first) < MOST_SHOWN:
            self.first.append(BadLine(line, reason))


@dataclass
class Column:
    """Numbers of one column, each with the row it stands in."""

    rows: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))
    texts: int = 0
    """Cells that hold no number."""
    example: str = ""
    """The first of these."""

    def numbers(self) -> tuple[Ints, Floats]:
        """(rows, values) as arrays."""
        return np.frombuffer(self.rows, np.int64), np.frombuffer(self.values, np.float64)


class Table:
    """Rows of named values, at most `most` of the rows, which may be empty, and of the values."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        self.columns: dict[str, Column] = {}
        self.lines = array("q")
        """Of each row, the line of the file."""
        self.bad = BadLines()
        self.labels: dict[str, list[str]] = {}
        """Columns that tell runs apart, a text for each row."""
        self.points = 0
        """Values of all columns."""
        self._most = most

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def size(self) -> int:
        """The values, or the rows where these are more: the limit of an import counts either."""
        return max(self.points, len(self.lines))

    def add(self, line: int, cells: Iterable[tuple[str, Any]]) -> None:
        """Enter one row. Missing values are passed over; a cell that is no number is counted."""
        row = len(self.lines)
        self.lines.append(line)
        for name, value in cells:
            column = self.columns.get(name)
            if column is None:
                column = self.column(name)
            number = value if type(value) is float else as_number(value)
            if number is not None:
                column.rows.append(row)
                column.values.append(number)
                self.points += 1
            elif not _is_missing(value):
                self._add_text(column, name, line, value)
        self._check_size()

    def _check_size(self) -> None:
        if self.points > self._most:
            raise too_many_values()
        if len(self.lines) > self._most:
            raise _too_many_rows()

    def _add_text(self, column: Column, name: str, line: int, value: Any) -> None:
        column.texts += 1
        column.example = column.example or shown(value)
        if column.values:  # a word in a column of numbers
            self.bad.add(line, f"{shown(name)} is {shown(value)}, expected a number")

    def column(self, name: str) -> Column:
        """The column of this name, made where there is none yet."""
        if name not in self.columns:
            if len(self.columns) >= MOST_COLUMNS:
                raise BadLog(f"has more than {MOST_COLUMNS:,} columns")
            if len(name) > MOST_NAME:
                raise BadLog(f"has a column whose name has {len(name):,} characters: {shown(name)}")
            self.columns[name] = Column()
        return self.columns[name]

    def extend(self, name: str, rows: Ints, values: Floats) -> None:
        """Enter many values of one column whose rows exist already."""
        column = self.column(name)
        column.rows.frombytes(rows.astype(np.int64).tobytes())
        column.values.frombytes(values.astype(np.float64).tobytes())
        self.points += len(rows)
        self._check_size()

    def append(self, other: "Table") -> None:
        """Enter all rows of another table behind the own ones."""
        first = len(self.lines)
        self._most += other.size  # which were counted where they were read
        self.lines.extend(other.lines)
        for name, column in other.columns.items():
            rows, values = column.numbers()
            self.extend(name, rows + first, values)
            own = self.columns[name]
            own.texts, own.example = own.texts + column.texts, own.example or column.example
        self.bad.count += other.bad.count
        self.bad.first = [*self.bad.first, *other.bad.first][:MOST_SHOWN]


@dataclass
class Facts:
    """Facts of a log about its run, beside the values."""

    name: str = ""
    variant: str | None = None
    """Runs of one variant are seeds of each other; None: the name, empty: the file's."""
    config: dict[str, Any] = field(default_factory=dict)
    """The other trainer's config, as it is."""
    seed: int | None = None
    steps: int | None = None
    """Steps that the run was to train."""
    started_at: float | None = None
    finished_at: float | None = None
    """Seconds since 1970."""
    failure: str = ""
    """Why it failed, where it did."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the report."""


@dataclass
class Log:
    """A log that has been read."""

    table: Table
    facts: Facts = field(default_factory=Facts)
    origin: str = ""
    """Where the content tells more than the format: a CSV file of W&B. Else empty."""
    step: str | None = None
    """Column of steps, where the format has one; None: it is guessed."""
    completions: "Completions | None" = None
    is_derived: bool = False
    """Whether the values are means of the completions."""

    def redact(self) -> None:
        """Replace secrets in names and facts; the config is redacted where it is stored."""
        names = _redacted_names(self.table.columns)
        self.table.columns = {names[name]: column for name, column in self.table.columns.items()}
        for column in self.table.columns.values():
            column.example = redact(column.example)
        self.step = self.step and names.get(self.step, redact(self.step))
        for name in ("name", "variant", "failure", "notes"):
            setattr(self.facts, name, redact_document(getattr(self.facts, name)))


def _redacted_names(columns: Iterable[str]) -> dict[str, str]:
    """Names of columns without secrets, by the name; a number follows where another column has the same."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for column in columns:
        plain = redact(column)
        numbered = (f"{plain} {number}" if number > 1 else plain for number in count(1))
        names[column] = next(name for name in numbered if name not in taken)
        taken.add(names[column])
    return names


def as_number(value: Any) -> float | None:
    """The number in a cell; None where it holds none. NaN and the infinities are numbers."""
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


def shown(value: Any) -> str:
    """The beginning of a value, quoted."""
    text = value if isinstance(value, str) else _in_short(value)
    text = text if len(text) <= 40 else text[:37] + "..."
    return repr(text) if isinstance(value, str) else text


def _in_short(value: Any) -> str:
    words = {dict: "an object", list: "a list", int: "a number that is too large"}
    return words.get(type(value), str(value))


def is_whole(values: Floats) -> NDArray[np.bool_]:
    """Mask of whole numbers from 0 to below 2^31 - 1: such can be steps."""
    with np.errstate(invalid="ignore"):
        return np.asarray((values >= 0) & (values < 2**31 - 1) & (np.floor(values) == values))


def flat(document: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterable[tuple[str, Any]]:
    """Cells of a nested row: {"train": {"loss": 1}} holds `train/loss`. Lists stay as they are."""
    for key, value in document.items():
        name = f"{prefix}/{key}" if prefix else key
        if type(value) is dict and depth < 4:
            yield from flat(value, name, depth + 1)
        else:
            yield name, value
