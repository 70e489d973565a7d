"""Split JSONL datasets into lines, and check their rows, with the same rules for uploads and files.

A line is one JSON object in strict UTF-8 of at most 256 kB. Duplicate keys, non-finite numbers, integers that
are too long for Python and deeply nested lists are refused, so that training can use every accepted row.
Blank lines are skipped. Only one line is in memory at a time.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from backend.config.columns import Columns, read_answer, read_prompt
from backend.config.messages import question_text, read_messages, read_tools
from backend.config.problems import DOMAIN_PATTERN

MAX_LINE_BYTES = 256_000
MAX_LINES = 5_000_000
MAX_DIGITS = 4300
"""Maximum number of digits of an integer. Python refuses to convert longer ones."""
MAX_DEPTH = 64
"""Maximum nesting depth of lists and objects, including the row itself."""
MAX_ERRORS = 20
MAX_DOMAINS = 32
"""Maximum number of domains, because each domain has a curve."""
EVAL_SPLITS = ("eval", "test", "validation")
SPLITS = ("train", *EVAL_SPLITS)
UNMARKED, TRAIN, EVAL = range(3)
_TOO_DEEP = f"is nested too deeply: expected at most {MAX_DEPTH} lists and objects within each other"


class LineError(NamedTuple):
    """An error in a line, or in the whole file if `line` is 0."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}" if self.line else self.reason


class Line(NamedTuple):
    """A line of a file without its line break. A line that is too long is truncated."""

    number: int
    """Line number, starting at 1."""
    offset: int
    """Byte offset of the line in the file."""
    text: bytes


class LineSplitter:
    """Splits a file into lines, given its content in arbitrary pieces."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._number = self._offset = self._read = 0

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """Yield the lines that end in a piece."""
        line_start = 0
        while (line_end := chunk.find(b"\n", line_start)) >= 0:
            self._keep(chunk[line_start:line_end])
            line_start = line_end + 1
            yield self._line(self._read + line_start)
        self._keep(chunk[line_start:])
        self._read += len(chunk)

    def finish(self) -> Iterator[Line]:
        """Yield the last line if it does not end with a line break."""
        if self._offset < self._read:
            yield self._line(self._read)

    def _keep(self, chunk: bytes) -> None:
        free_bytes = MAX_LINE_BYTES + 2 - len(self._begun)
        self._begun += chunk[:free_bytes]

    def _line(self, next_offset: int) -> Line:
        self._number += 1
        line = Line(self._number, self._offset, bytes(self._begun).rstrip(b"\r"))
        self._begun.clear()
        self._offset = next_offset
        return line


class RowCheck:
    """Checks the lines of a file in order and stores the first errors, in constant memory."""

    def __init__(self, columns: Columns) -> None:
        self.errors: list[LineError] = []
        self.rows = 0
        self._columns = columns
        self._domains: set[str] = set()
        self._first_key: int | None = None
        self._has_two = self._is_too_long = False

    @property
    def is_over(self) -> bool:
        """Whether the check has ended, because there are too many lines or errors."""
        return self._is_too_long or len(self.errors) >= MAX_ERRORS

    def check_line(self, line: Line) -> dict[str, Any] | None:
        """Check a line and return its row, or None if it is blank or invalid."""
        if line.number > MAX_LINES and not self._is_too_long:
            self.errors, self._is_too_long = [LineError(0, f"has more than {MAX_LINES:,} lines")], True
        if self.is_over or not line.text.strip():
            return None
        try:
            row = parse_line(line.text)
            check_row(row, self._columns)
            self._count_domain(row)
        except ValueError as error:
            self.errors.append(LineError(line.number, str(error)))
            return None
        self.rows += 1
        if not self._has_two:
            key = question_key(question_text(read_prompt(row, self._columns)))
            self._has_two = self._first_key not in (None, key)
            self._first_key = key
        return row

    def finish(self) -> list[LineError]:
        """Return all errors, including those of the whole file."""
        if not self.errors and not self._has_two:
            self.errors.append(LineError(0, _too_few(self.rows)))
        return self.errors

    def _count_domain(self, row: Mapping[str, Any]) -> None:
        if "domain" in row:
            self._domains.add(str(row["domain"]))
        if len(self._domains) > MAX_DOMAINS:
            self._domains.discard(str(row["domain"]))
            raise ValueError(
                f"field 'domain': expected at most {MAX_DOMAINS} domains in a file, "
                f"{value_excerpt(row['domain'])} is one more"
            )


def parse_line(line: bytes) -> dict[str, Any]:
    """Parse the JSON object on a line. Raises ValueError with the reason if it is not valid."""
    if len(line.rstrip(b"\r\n")) > MAX_LINE_BYTES:
        raise ValueError(f"is longer than {MAX_LINE_BYTES:,} bytes")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 at byte {error.start + 1} ({error.reason})") from None
    try:
        row = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        raise ValueError(
            f"is not JSON at column {error.colno} ({error.msg}): {value_excerpt(text)}"
        ) from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count("{") + text.count("[") > MAX_DEPTH and _depth(row) > MAX_DEPTH:
        raise ValueError(_TOO_DEEP)
    if not isinstance(row, dict):
        raise ValueError(f"expected a JSON object, got {value_excerpt(text)}")  # noqa: TRY004 - the line is the value
    if b"\\ud" in line.lower():
        _check_storable(row)
    return row


def check_row(row: Mapping[str, Any], columns: Columns) -> None:
    """Check the fields of a row. Raises ValueError with the field, its value and the expected value."""
    prompt, answer = read_prompt(row, columns), read_answer(row, columns)
    split = row.get("split")
    if isinstance(prompt, list):
        _check_field(columns.prompt, read_messages, prompt)
        _check_field("tools", read_tools, row.get("tools"))
    elif not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(
            f"field {columns.prompt!r}: expected text that is not empty, got {value_excerpt(prompt)}"
        )
    if not _is_answer(answer):
        raise ValueError(f"field {columns.answer!r}: expected text or a number, got {value_excerpt(answer)}")
    if split is not None and split not in SPLITS:
        raise ValueError(f"field 'split': expected one of {', '.join(SPLITS)}, got {value_excerpt(split)}")
    if "id" in row and not isinstance(row["id"], str | int):
        raise ValueError(f"field 'id': expected text, got {value_excerpt(row['id'])}")
    if "domain" in row and not is_domain(row["domain"]):
        expected = "expected 1 to 32 of a-z, 0-9, _ and -, the first a letter or digit"
        raise ValueError(f"field 'domain': {expected}, got {value_excerpt(row['domain'])}")


def _check_field(name: str, read: Callable[[Any], object], value: object) -> None:
    try:
        read(value)
    except ValueError as error:
        raise ValueError(f"field {name!r}: {error}") from None


def is_domain(value: object) -> bool:
    """Return whether a value is a valid name of a domain."""
    return isinstance(value, str | int) and re.fullmatch(DOMAIN_PATTERN.rstrip("$"), str(value)) is not None


def split_mark(row: Mapping[str, Any]) -> int:
    """Return UNMARKED, TRAIN or EVAL, depending on the field `split` of the row."""
    split = row.get("split")
    return UNMARKED if split is None else TRAIN if split == "train" else EVAL


def question_key(question: str) -> int:
    """Return the 64-bit hash of a question that decides whether it is held out."""
    return int.from_bytes(blake2b(question.encode(), digest_size=8).digest())


def _too_few(rows: int) -> str:
    if not rows:
        return "has no row: expected at least two objects with a prompt and an answer"
    return "has only one question: expected at least two, because one is held out for evaluation"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {value_excerpt(duplicate)} occurs twice")
    return row


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"number {text} is not finite")
    return number


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits: expected at most {MAX_DIGITS:,} outside of text")
    return int(text)


def _is_answer(value: Any) -> bool:
    if isinstance(value, float):
        return value - value == 0
    return isinstance(value, str | int) and not isinstance(value, bool) and bool(str(value).strip())


def _depth(value: Any) -> int:
    """Return the nesting depth of lists and objects, counted layer by layer to avoid recursion."""
    layer, depth = [value], 0
    while layer := [node for node in layer if isinstance(node, dict | list)]:
        layer = [child for node in layer for child in (node.values() if isinstance(node, dict) else node)]
        depth += 1
    return depth


def _check_storable(value: Any) -> None:
    """Raise ValueError if a value contains an escaped lone surrogate, which cannot be stored."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("holds a lone surrogate escape, which is not a character") from None


def value_excerpt(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = text if len(text) <= 60 else text[:57] + "..."
    return json.dumps(text) if isinstance(value, str) else text
