"""Files of DATASETS_DIR: checked as a whole, indexed, and read row by row when training wants one.

Of each row only its place in the file is kept in memory.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from backend.config.columns import Columns, read_prompt
from backend.config.messages import question_text
from backend.config.rows import (
    EVAL,
    MAX_LINE_BYTES,
    UNMARKED,
    Line,
    LineError,
    LineSplitter,
    RowCheck,
    parse_line,
    question_key,
    split_mark,
    value_excerpt,
)

PIECE_BYTES = 1 << 20
"""A file is read in pieces of this size."""


class BadDataset(ValueError):
    """A file that cannot be trained on, with its first 20 errors."""

    def __init__(self, name: str, errors: list[LineError]) -> None:
        super().__init__(f"{name}: " + "; ".join(map(str, errors)))
        self.name = name
        self.errors = errors


@dataclass(frozen=True)
class JsonlIndex:
    """A checked file: the positions of its rows and which rows are held out."""

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
    conversation: int
    """Number of the first line whose prompt is a list of messages; 0: there is none."""
    stamp: tuple[int, int]
    """Size in bytes and time of change in nanoseconds."""

    def __len__(self) -> int:
        return len(self.offsets)

    @cached_property
    def long_length(self) -> int:
        """Characters that 19 of 20 prompts do not exceed."""
        return sorted(self.lengths)[int(0.95 * (len(self.lengths) - 1))] if self.lengths else 0


def index_dataset(path: Path, columns: Columns) -> JsonlIndex:
    """Read and check a whole file.

    Raises BadDataset with up to 20 errors, each with its line, field, value and what was expected.
    """
    check, digest, stamp = RowCheck(columns), sha256(), _stamp(path)
    offsets, keys, lines, lengths = array("Q"), array("Q"), array("I"), array("I")
    splits, conversation = bytearray(), 0
    for line in _lines(path, digest):
        if (row := check.take(line)) is not None:
            prompt = read_prompt(row, columns)
            question = question_text(prompt)
            conversation = conversation or (line.number if isinstance(prompt, list) else 0)
            offsets.append(line.offset)
            keys.append(question_key(question))
            splits.append(split_mark(row))
            lines.append(line.number)
            lengths.append(len(question))
        if check.is_over:
            break
    if errors := check.finish():
        raise BadDataset(path.name, errors)
    return JsonlIndex(path, digest.hexdigest(), offsets, keys, splits, lines, lengths, conversation, stamp)


def read_row(index: JsonlIndex, number: int) -> dict[str, Any]:
    """Row `number` (0, 1, 2, ...) of an indexed file; BadDataset when the file has changed since."""
    if _stamp(index.path) != index.stamp:
        raise BadDataset(index.path.name, [LineError(0, "has changed while it was in use")])
    with index.path.open("rb") as file:
        file.seek(index.offsets[number])
        return parse_line(file.readline(MAX_LINE_BYTES + 2))


def held_out_keys(keys: Sequence[int], splits: Sequence[int], fraction: float) -> set[int]:
    """Return the questions kept for evaluation: those marked so and a fraction of the unmarked, lowest hashes
    first.

    A question that stands in several rows is held out with all of them. At least one question is held out.
    """
    marked = {key for key, split in zip(keys, splits, strict=True) if split == EVAL}
    unmarked = {key for key, split in zip(keys, splits, strict=True) if split == UNMARKED} - marked
    count = round(fraction * len(unmarked)) if marked else max(1, round(fraction * len(unmarked)))
    return marked | set(sorted(unmarked)[:count])


def resolve_dataset(datasets_dir: Path, name: str) -> Path:
    """Return the file `name` of DATASETS_DIR; ValueError when it is none, or lies outside."""
    root = datasets_dir.expanduser().resolve()
    if "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"expected a path inside DATASETS_DIR, got {value_excerpt(name)}")
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise ValueError(f"leads out of DATASETS_DIR ({root}): {value_excerpt(name)}")
    if not path.is_file():
        raise ValueError(f"there is no file {value_excerpt(name)} in DATASETS_DIR ({root})")
    return path


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _lines(path: Path, digest: Any) -> Iterator[Line]:
    splitter = LineSplitter()
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
            yield from splitter.feed(piece)
    yield from splitter.finish()
