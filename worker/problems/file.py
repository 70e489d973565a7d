"""A JSONL file of DATASETS_DIR as a problem."""

from pathlib import Path
from typing import Any

from backend.config.jsonl import JsonlIndex, read_row
from backend.config.problems import FileProblem
from backend.config.sources import checked_file
from worker.problems.rows import RowProblem, row_source


class JsonlTable:
    """The rows of an indexed file, read from the disk when they are asked for."""

    def __init__(self, index: JsonlIndex) -> None:
        self._index = index
        self.keys, self.splits = index.keys, index.splits

    def row(self, number: int) -> dict[str, Any]:
        """One row; BadDataset when the file has changed since it was indexed."""
        return read_row(self._index, number)


def load_file(
    source: FileProblem, datasets_dir: Path, *, seed: int, shuffled: bool, trains: bool = True
) -> RowProblem:
    """The problem of a file; ValueError says what is wrong with it."""
    index = checked_file(source, datasets_dir, trains=trains)
    return RowProblem(JsonlTable(index), row_source(source), seed=seed, shuffled=shuffled)
