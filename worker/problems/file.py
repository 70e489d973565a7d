"""A JSONL file in DATASETS_DIR as a problem."""

from pathlib import Path
from typing import Any

from backend.config.jsonl import JsonlIndex, read_row
from backend.config.problems import FileProblem
from backend.config.sources import checked_file
from worker.problems.rows import RowProblem, row_source


class JsonlTable:
    """The rows of an indexed file, read from disk on request."""

    def __init__(self, index: JsonlIndex) -> None:
        self._index = index
        self.keys, self.splits = index.keys, index.splits

    def row(self, number: int) -> dict[str, Any]:
        """Return one row, or raise BadDataset if the file has changed since it was indexed."""
        return read_row(self._index, number)


def load_file(
    source: FileProblem, datasets_dir: Path, *, seed: int, shuffled: bool, trains: bool = True
) -> RowProblem:
    """Load the problem of a file. Raises ValueError with the reason if it is invalid."""
    index = checked_file(source, datasets_dir, trains=trains)
    return RowProblem(JsonlTable(index), row_source(source), seed=seed, shuffled=shuffled)
