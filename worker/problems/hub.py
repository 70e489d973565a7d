"""Load datasets of the Hugging Face hub from Parquet or JSONL files. Code of a dataset is never run."""

import json
import tempfile
import weakref
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.catalog.datasets.tables import table_lines
from backend.config.columns import Columns, read_prompt
from backend.config.hub import PARQUET_BRANCH
from backend.config.messages import question_text
from backend.config.problems import HubProblem
from backend.config.rows import (
    EVAL,
    MAX_LINES,
    TRAIN,
    UNMARKED,
    Line,
    LineSplitter,
    check_row,
    parse_line,
    question_key,
)
from backend.config.sources import offline_reason
from worker.problems.rows import RowProblem, row_source

MAX_FILE_BYTES = 20_000_000_000
"""Maximum unpacked size of one file, in bytes."""


class SpooledTable:
    """Rows in an unnamed file on disk. Only their positions are kept in memory."""

    def __init__(self, columns: Columns) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - open while the table is used
        weakref.finalize(self, self._file.close)
        self._columns = columns
        self._ends = array("Q", [0])
        self.keys = array("Q")
        self.splits = bytearray()

    def add(self, line: bytes, row: dict[str, Any], split: int) -> None:
        """Add a checked row."""
        self._file.write(line)
        self._ends.append(self._ends[-1] + len(line))
        self.keys.append(question_key(question_text(read_prompt(row, self._columns))))
        self.splits.append(split)

    def row(self, number: int) -> dict[str, Any]:
        """Return one row."""
        start, end = self._ends[number], self._ends[number + 1]
        self._file.seek(start)
        row: dict[str, Any] = json.loads(self._file.read(end - start))
        return row


def load_hub(source: HubProblem, *, seed: int, shuffled: bool, hf_online: bool) -> RowProblem:
    """Load the problem of a hub dataset, or raise ValueError with the reason if it is unavailable."""
    if not hf_online:
        raise ValueError(offline_reason(source.dataset))
    train = _download(source.dataset, source.subset, source.split, source.revision)
    held_out = None
    if source.eval_split:
        revision = source.eval_revision if source.eval_dataset else source.revision
        held_out = _download(
            source.eval_dataset or source.dataset, source.subset, source.eval_split, revision
        )
    return load_folders(source, train, held_out, seed=seed, shuffled=shuffled)


def load_folders(
    source: HubProblem, train: Path, held_out: Path | None, *, seed: int, shuffled: bool
) -> RowProblem:
    """Load the problem of folders with the hub's layout, with training rows and held-out rows."""
    columns = Columns(source.prompt_field, source.answer_field)
    table = SpooledTable(columns)
    split_mark = UNMARKED if held_out is None else TRAIN
    for line, row in _rows(train, source.subset, source.split, columns):
        table.add(line, row, split_mark)
    if held_out is not None:
        for line, row in _rows(held_out, source.subset, source.eval_split, columns):
            table.add(line, row, EVAL)
    return RowProblem(table, row_source(source), seed=seed, shuffled=shuffled)


def _patterns(subset: str, split: str) -> list[str]:
    """Return path patterns of a split's files, in the hub's Parquet branch and in the usual layouts of
    datasets.
    """
    folders = [f"{subset}/", "data/", ""] if subset == "default" else [f"{subset}/"]
    names = [f"{split}/*", f"{split}-*", f"{split}"]
    return [f"{folder}{name}.{kind}" for folder in folders for name in names for kind in ("parquet", "jsonl")]


def _download(dataset: str, subset: str, split: str, revision: str) -> Path:
    from worker.hub import fetch_files

    try:
        return fetch_files(
            dataset,
            patterns=_patterns(subset, split),
            revision=revision or PARQUET_BRANCH,
            repo_type="dataset",
        )
    except OSError as error:
        raise ValueError(f"{dataset!r} could not be fetched from the Hugging Face hub: {error}") from error


def _rows(folder: Path, subset: str, split: str, columns: Columns) -> Iterator[tuple[bytes, dict[str, Any]]]:
    matches = (sorted(folder.glob(pattern)) for pattern in _patterns(subset, split))
    files = next(filter(None, matches), [])
    if not files:
        raise ValueError(f"the dataset has no Parquet or JSONL file for {subset}/{split}")
    for file in files:
        for number, line in enumerate(_read_lines(file), start=1):
            row_name = f"{split}/{file.name} row {number}"
            if number > MAX_LINES:
                raise ValueError(f"{file.name} has more than {MAX_LINES:,} rows")
            try:
                row = parse_line(line.text)
                check_row(row, columns)
            except ValueError as error:
                raise ValueError(f"{row_name}: {error}") from error
            yield line.text, row


def _read_lines(file: Path) -> Iterator[Line]:
    splitter = LineSplitter()
    for chunk in _read_chunks(file):
        yield from (line for line in splitter.feed(chunk) if line.text.strip())
    yield from (line for line in splitter.finish() if line.text.strip())


def _read_chunks(file: Path) -> Iterator[bytes]:
    if file.suffix == ".parquet":
        try:
            yield from table_lines(file.resolve(), ".parquet", max_bytes=MAX_FILE_BYTES)
        except ValueError as error:
            raise ValueError(f"{file.name} {error}") from error
        return
    with file.open("rb") as content:
        while chunk := content.read(1 << 20):
            yield chunk
