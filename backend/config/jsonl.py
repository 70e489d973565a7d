"""Index the JSONL files of DATASETS_DIR and read single rows from them.

A file is checked completely when it is indexed. Rows stay on the disk, and only their offsets are kept in
memory.
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
"""Size of the pieces in which a file is read, in bytes."""


class BadDataset(ValueError):
    """A dataset file is invalid. `errors` has its first 20 errors."""

    def __init__(self, name: str, errors: list[LineError]) -> None:
        super().__init__(f"{name}: " + "; ".join(map(str, errors)))
        self.name = name
        self.errors = errors


@dataclass(frozen=True)
class JsonlIndex:
    """The index of a checked file, with the offsets of its rows and the rows marked as held out."""

    path: Path
    sha256: str
    """SHA-256 of the whole content."""
    offsets: "array[int]"
    """Byte offset of each row, of shape [rows]."""
    keys: "array[int]"
    """64-bit hash of each question, of shape [rows]."""
    splits: bytearray
    """The `split` of each row as UNMARKED, TRAIN or EVAL, of shape [rows]."""
    lines: "array[int]"
    """Line number of each row, starting at 1, of shape [rows]."""
    lengths: "array[int]"
    """Number of characters of each prompt, of shape [rows]."""
    conversation: int
    """Number of the first line whose prompt is a list of messages, or 0 if there is none."""
    file_version: tuple[int, int]
    """Size of the file in bytes and its modification time in nanoseconds."""

    def __len__(self) -> int:
        return len(self.offsets)

    @cached_property
    def long_length(self) -> int:
        """95th percentile of the prompt lengths, in characters."""
        return sorted(self.lengths)[int(0.95 * (len(self.lengths) - 1))] if self.lengths else 0


def index_dataset(path: Path, columns: Columns) -> JsonlIndex:
    """Read, check and index a whole file.

    Raises BadDataset with up to 20 errors, each with the line, the field, the value and the expected value.
    """
    check, digest, file_version = RowCheck(columns), sha256(), _read_file_version(path)
    offsets, keys, lines, lengths = array("Q"), array("Q"), array("I"), array("I")
    splits, conversation = bytearray(), 0
    for line in _lines(path, digest):
        if (row := check.check_line(line)) is not None:
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
    return JsonlIndex(
        path, digest.hexdigest(), offsets, keys, splits, lines, lengths, conversation, file_version
    )


def read_row(index: JsonlIndex, number: int) -> dict[str, Any]:
    """Return the row with the index `number`, starting at 0. Raises BadDataset if the file has changed."""
    if _read_file_version(index.path) != index.file_version:
        raise BadDataset(index.path.name, [LineError(0, "has changed while it was in use")])
    with index.path.open("rb") as file:
        file.seek(index.offsets[number])
        return parse_line(file.readline(MAX_LINE_BYTES + 2))


def held_out_keys(keys: Sequence[int], splits: Sequence[int], fraction: float) -> set[int]:
    """Return the hashes of the held-out questions: the marked ones and a fraction of the unmarked ones.

    Unmarked questions with the lowest hashes are held out. If a question occurs in several rows, all of them
    are held out. At least one question is held out.
    """
    marked_keys = {key for key, split in zip(keys, splits, strict=True) if split == EVAL}
    unmarked_keys = {key for key, split in zip(keys, splits, strict=True) if split == UNMARKED} - marked_keys
    count = (
        round(fraction * len(unmarked_keys)) if marked_keys else max(1, round(fraction * len(unmarked_keys)))
    )
    return marked_keys | set(sorted(unmarked_keys)[:count])


def resolve_dataset(datasets_dir: Path, name: str) -> Path:
    """Return the path of a file in DATASETS_DIR. Raises ValueError if it is missing or outside."""
    root = datasets_dir.expanduser().resolve()
    if "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"expected a path inside DATASETS_DIR, got {value_excerpt(name)}")
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise ValueError(f"leads out of DATASETS_DIR ({root}): {value_excerpt(name)}")
    if not path.is_file():
        raise ValueError(f"there is no file {value_excerpt(name)} in DATASETS_DIR ({root})")
    return path


def _read_file_version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _lines(path: Path, digest: Any) -> Iterator[Line]:
    splitter = LineSplitter()
    with path.open("rb") as file:
        while chunk := file.read(PIECE_BYTES):
            digest.update(chunk)
            yield from splitter.feed(chunk)
    yield from splitter.finish()
