"""A data set of the Hugging Face hub as a problem, read from Parquet files; no code of a data set is run."""

from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backend.config.problems import HubProblem
from backend.config.rows import EVAL, MAX_LINES, TRAIN, UNMARKED, Columns, check_row, parse_line, question_key
from backend.config.sources import offline_reason
from worker.problems.rows import RowProblem, RowSource

PARQUET_BRANCH = "refs/convert/parquet"
"""The branch in which the hub keeps every public data set as `<subset>/<split>/*.parquet`."""


class MemoryTable:
    """Rows held in memory."""

    def __init__(self, rows: list[Mapping[str, Any]], splits: bytearray, columns: Columns) -> None:
        self._rows = rows
        self.splits = splits
        self.keys = array("Q", (question_key(str(row[columns.prompt])) for row in rows))

    def row(self, number: int) -> Mapping[str, Any]:
        """One row."""
        return self._rows[number]


def load_hub(source: HubProblem, *, seed: int, shuffled: bool, hf_online: bool) -> RowProblem:
    """The problem of a hub data set; ValueError says why it cannot be had."""
    if not hf_online:
        raise ValueError(offline_reason(source.dataset))
    return load_folder(source, _downloaded(source), seed=seed, shuffled=shuffled)


def load_folder(source: HubProblem, folder: Path, *, seed: int, shuffled: bool) -> RowProblem:
    """The problem of a folder laid out as the hub's Parquet branch; JSONL files are read too."""
    columns = Columns(source.prompt_field, source.answer_field)
    rows = list(_rows(folder / source.subset / source.split, columns))
    held_out = list(_rows(folder / source.subset / source.eval_split, columns)) if source.eval_split else []
    splits = bytearray([TRAIN if held_out else UNMARKED] * len(rows) + [EVAL] * len(held_out))
    table = MemoryTable([*rows, *held_out], splits, columns)
    settings = RowSource(
        label=source.label,
        columns=columns,
        answer_after=source.answer_after,
        instruction=source.instruction,
        domain=source.domain,
        eval_fraction=source.eval_fraction,
    )
    return RowProblem(table, settings, seed=seed, shuffled=shuffled)


def _downloaded(source: HubProblem) -> Path:
    from huggingface_hub import snapshot_download

    splits = filter(None, (source.split, source.eval_split))
    patterns = [f"{source.subset}/{split}/*.parquet" for split in splits]
    try:
        folder = snapshot_download(
            source.dataset, repo_type="dataset", revision=PARQUET_BRANCH, allow_patterns=patterns
        )
    except OSError as error:
        raise ValueError(
            f"{source.dataset!r} could not be fetched from the Hugging Face hub: {error}"
        ) from error
    return Path(folder)


def _rows(folder: Path, columns: Columns) -> Iterator[Mapping[str, Any]]:
    files = sorted([*folder.glob("*.parquet"), *folder.glob("*.jsonl")])
    if not files:
        raise ValueError(f"the data set has no Parquet file for {folder.parent.name}/{folder.name}")
    for file in files:
        read = _parquet_rows if file.suffix == ".parquet" else _jsonl_rows
        for number, row in enumerate(read(file, columns), start=1):
            if number > MAX_LINES:
                raise ValueError(f"{file.name} has more than {MAX_LINES:,} rows")
            yield _checked(row, columns, place=f"{folder.name}/{file.name} row {number}")


def _jsonl_rows(file: Path, columns: Columns) -> Iterator[Mapping[str, Any]]:
    with file.open("rb") as lines:
        yield from (parse_line(line) for line in lines if line.strip())


def _parquet_rows(file: Path, columns: Columns) -> Iterator[Mapping[str, Any]]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(file) as table:
        present = table.schema_arrow.names
        if missing := [name for name in columns if name not in present]:
            raise ValueError(f"column {missing[0]!r} is missing; the columns are {', '.join(present)}")
        for batch in table.iter_batches(batch_size=1000, columns=list(columns)):
            yield from batch.to_pylist()


def _checked(row: Mapping[str, Any], columns: Columns, *, place: str) -> Mapping[str, Any]:
    try:
        check_row(row, columns)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    return row
