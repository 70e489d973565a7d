"""Reading and checking JSONL data sets: the API refuses bad files with it, the worker trains on good ones.

A line is one JSON object in strict UTF-8, at most 256 kB long, without duplicate keys and non-finite numbers.
Blank lines are skipped. Of each row only its place in the file is kept in memory.
"""

import json
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, NamedTuple

from backend.config.problems import DOMAIN

MAX_LINE_BYTES = 256_000
MAX_LINES = 5_000_000
MAX_ERRORS = 20
MAX_DOMAINS = 32
"""Each domain is a curve of its own."""
EVAL_SPLITS = ("eval", "test", "validation")
SPLITS = ("train", *EVAL_SPLITS)
UNMARKED, TRAIN, EVAL = range(3)


class LineError(NamedTuple):
    """What is wrong with one line; line 0 is the file as a whole."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}" if self.line else self.reason


class BadDataset(ValueError):
    """A file that cannot be trained on, with its first 20 errors."""

    def __init__(self, name: str, errors: list[LineError]) -> None:
        super().__init__(f"{name}: " + "; ".join(map(str, errors)))
        self.name = name
        self.errors = errors


class Columns(NamedTuple):
    """Which fields hold what."""

    prompt: str = "prompt"
    answer: str = "answer"


@dataclass(frozen=True)
class JsonlIndex:
    """A checked file: where its rows stand and which of them are held out."""

    path: Path
    sha256: str
    """Hash of the whole content."""
    offsets: "array[int]"
    """[rows] byte at which each row begins."""
    keys: "array[int]"
    """[rows] 64-bit hash of each question."""
    splits: bytearray
    """[rows] UNMARKED, TRAIN or EVAL: the row's own `split`."""
    lines: "array[int]"
    """[rows] number of its line, from 1."""
    lengths: "array[int]"
    """[rows] characters of the prompt."""
    stamp: tuple[int, int]
    """Size in bytes and time of change in nanoseconds."""

    def __len__(self) -> int:
        return len(self.offsets)


@dataclass
class _Scan:
    """The index while it grows."""

    columns: Columns
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    keys: "array[int]" = field(default_factory=lambda: array("Q"))
    splits: bytearray = field(default_factory=bytearray)
    lines: "array[int]" = field(default_factory=lambda: array("I"))
    lengths: "array[int]" = field(default_factory=lambda: array("I"))
    errors: list[LineError] = field(default_factory=list)
    domains: set[str] = field(default_factory=set)

    def take(self, number: int, offset: int, line: bytes) -> None:
        """One line of the file, without its line break."""
        try:
            row = parse_line(line)
            check_row(row, self.columns)
            self._count_domain(row)
        except ValueError as error:
            self.errors.append(LineError(number, str(error)))
            return
        self.offsets.append(offset)
        self.keys.append(question_key(str(row[self.columns.prompt])))
        self.splits.append(split_mark(row))
        self.lines.append(number)
        self.lengths.append(len(row[self.columns.prompt]))

    def _count_domain(self, row: Mapping[str, Any]) -> None:
        if "domain" in row:
            self.domains.add(str(row["domain"]))
        if len(self.domains) > MAX_DOMAINS:
            self.domains.discard(str(row["domain"]))
            raise ValueError(
                f"field 'domain': at most {MAX_DOMAINS} domains are expected in a file, "
                f"{_shown(row['domain'])} is one more"
            )


def index_dataset(path: Path, columns: Columns) -> JsonlIndex:
    """Read and check a whole file.

    Raises BadDataset with up to 20 errors, each with its line, field, value and what was expected.
    """
    scan, digest, stamp = _Scan(columns), sha256(), _stamp(path)
    for number, offset, line in _lines(path, digest):
        if line.strip():
            scan.take(number, offset, line)
        if len(scan.errors) >= MAX_ERRORS:
            break
    if not scan.errors and len(set(scan.keys)) < 2:
        scan.errors.append(LineError(0, _too_few(len(scan.offsets))))
    if scan.errors:
        raise BadDataset(path.name, scan.errors)
    rows = (scan.offsets, scan.keys, scan.splits, scan.lines, scan.lengths)
    return JsonlIndex(path, digest.hexdigest(), *rows, stamp)


def read_row(index: JsonlIndex, number: int) -> dict[str, Any]:
    """Row `number` (0, 1, 2, ...) of an indexed file; BadDataset when the file has changed since."""
    if _stamp(index.path) != index.stamp:
        raise BadDataset(index.path.name, [LineError(0, "has changed while it was in use")])
    with index.path.open("rb") as file:
        file.seek(index.offsets[number])
        return parse_line(file.readline(MAX_LINE_BYTES + 2))


def parse_line(line: bytes) -> dict[str, Any]:
    """The object on one line; ValueError says what is wrong with it."""
    if len(line.rstrip(b"\r\n")) > MAX_LINE_BYTES:
        raise ValueError(f"is longer than {MAX_LINE_BYTES:,} bytes")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 at byte {error.start + 1} ({error.reason})") from None
    try:
        row = json.loads(text, object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON at column {error.colno} ({error.msg}): {_shown(text)}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(row, dict):
        raise ValueError(f"a JSON object is expected, got {_shown(text)}")  # noqa: TRY004 - the line is the value
    if b"\\ud" in line.lower():
        _check_storable(row)
    return row


def check_row(row: Mapping[str, Any], columns: Columns) -> None:
    """ValueError names the field, the value and what was expected."""
    for name in columns:
        if name not in row:
            known = ", ".join(map(repr, list(row)[:10])) or "none"
            raise ValueError(f"field {name!r} is missing; the fields are {known}")
    prompt, answer, split = row[columns.prompt], row[columns.answer], row.get("split")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(
            f"field {columns.prompt!r}: text that is not empty is expected, got {_shown(prompt)}"
        )
    if isinstance(answer, bool) or not isinstance(answer, str | int | float) or not str(answer).strip():
        raise ValueError(f"field {columns.answer!r}: text or a number is expected, got {_shown(answer)}")
    if split is not None and split not in SPLITS:
        raise ValueError(f"field 'split': one of {', '.join(SPLITS)} is expected, got {_shown(split)}")
    if "id" in row and not isinstance(row["id"], str | int):
        raise ValueError(f"field 'id': text is expected, got {_shown(row['id'])}")
    if "domain" in row and not is_domain(row["domain"]):
        expected = "1 to 32 of a-z, 0-9, _ and - are expected, the first a letter or digit"
        raise ValueError(f"field 'domain': {expected}, got {_shown(row['domain'])}")


def is_domain(value: object) -> bool:
    """Whether a value can name a domain."""
    return isinstance(value, str | int) and re.fullmatch(DOMAIN.rstrip("$"), str(value)) is not None


def split_mark(row: Mapping[str, Any]) -> int:
    """UNMARKED, TRAIN or EVAL as the row's own `split` says."""
    split = row.get("split")
    return UNMARKED if split is None else TRAIN if split == "train" else EVAL


def question_key(question: str) -> int:
    """64-bit hash that decides whether a question is held out."""
    return int.from_bytes(blake2b(question.encode(), digest_size=8).digest())


def held_out_keys(keys: Sequence[int], splits: Sequence[int], fraction: float) -> set[int]:
    """The questions kept for evaluation: those marked so and a fraction of the unmarked, lowest hashes first.

    A question that stands in several rows is held out with all of them. At least one question is held out.
    """
    marked = {key for key, split in zip(keys, splits, strict=True) if split == EVAL}
    unmarked = {key for key, split in zip(keys, splits, strict=True) if split == UNMARKED} - marked
    count = round(fraction * len(unmarked)) if marked else max(1, round(fraction * len(unmarked)))
    return marked | set(sorted(unmarked)[:count])


def resolve_dataset(datasets_dir: Path, name: str) -> Path:
    """The file `name` of DATASETS_DIR; ValueError when it is none, or lies outside."""
    root = datasets_dir.expanduser().resolve()
    if "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"a path inside DATASETS_DIR is expected, got {_shown(name)}")
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise ValueError(f"leads out of DATASETS_DIR ({root}): {_shown(name)}")
    if not path.is_file():
        raise ValueError(f"there is no file {_shown(name)} in DATASETS_DIR ({root})")
    return path


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _lines(path: Path, digest: Any) -> Iterator[tuple[int, int, bytes]]:
    """(number, offset, line) of each line; a line over the limit comes once, cut just above it."""
    offset, number = 0, 0
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES + 2):
            number += 1
            if number > MAX_LINES:
                raise BadDataset(path.name, [LineError(0, f"has more than {MAX_LINES:,} lines")])
            start, whole = offset, line
            while not line.endswith(b"\n") and line:
                digest.update(line)
                offset += len(line)
                line = file.readline(MAX_LINE_BYTES + 2)
            digest.update(line)
            offset += len(line)
            yield number, start, whole.rstrip(b"\r\n")


def _too_few(rows: int) -> str:
    if not rows:
        return "has no row: at least two objects with a prompt and an answer are expected"
    return "has only one question: at least two are expected, because one is held out for evaluation"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {_shown(twice)} stands twice")
    return row


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"number {text} is not finite")
    return number


def _check_storable(value: Any) -> None:
    """Lone surrogates, which JSON can spell as escapes, can be stored nowhere."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("holds a lone surrogate escape, which is no character") from None


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = text if len(text) <= 60 else text[:57] + "..."
    return json.dumps(text) if isinstance(value, str) else text
