"""Preview of a file before its upload, with its first rows as prompts and answers."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from backend.base.documented import Documented
from backend.catalog.datasets.guess import ColumnMapping, column_names, guess_mapping, unused_column_notes
from backend.catalog.datasets.unpacking import BadFile
from backend.config.columns import read_answer, read_prompt, stated_answer
from backend.config.messages import question_text
from backend.config.rows import Line, LineSplitter, check_row, parse_line

MAX_ROWS = 20
"""Maximum number of rows that the preview reads."""

MAX_BYTES = 1_000_000
"""Number of bytes after which the preview stops reading."""

SHOWN_ROWS = 3
MAX_SHOWN_CHARACTERS = 1_000
"""Maximum number of characters shown of each question and of each answer."""


class RowPreview(Documented):
    """A row as a problem would use it."""

    prompt: str
    answer: str
    """Reference answer for grading."""
    is_held_out: bool
    """Whether the field `split` of the row marks it as held out."""
    error: str
    """Reason why the row cannot be used, or "" if it can be used."""


class DatasetPreview(Documented):
    """Preview of a file, with its columns, their mapping and three rows as prompts."""

    columns: list[str]
    """Names of up to 200 columns. Fields of objects are named `a.b`."""
    mapping: ColumnMapping | None
    """Named columns, with guesses for the others, or null if no columns could be guessed."""
    rows: list[RowPreview]
    notes: list[str]
    sample: str
    """The rows that were read, as JSONL, so that a client can preview them again with other columns."""


def read_first_lines(chunks: Iterator[bytes], *, is_cut: bool = False) -> tuple[list[bytes], Iterator[bytes]]:
    """Return the first non-blank lines of a file, and an iterator over the whole content. Raises BadFile.

    If the file is truncated (`is_cut`), errors after its first line and an incomplete last line are ignored.
    """
    lines, splitter, read_chunks, size = list[bytes](), LineSplitter(), list[bytes](), 0
    try:
        for chunk in chunks:
            read_chunks.append(chunk)
            size += len(chunk)
            lines += _texts(splitter.feed(chunk))
            if len(lines) >= MAX_ROWS or size >= MAX_BYTES:
                return lines[:MAX_ROWS], chain(read_chunks, chunks)
    except BadFile:
        if not (is_cut and lines):
            raise
    if not (is_cut and lines):
        lines += _texts(splitter.finish())
    return lines[:MAX_ROWS], iter(read_chunks)


def _texts(lines: Iterator[Line]) -> list[bytes]:
    return [line.text for line in lines if line.text.strip()]


def parse_rows(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return the rows of all lines that are valid."""
    rows = []
    for line in lines:
        try:
            rows.append(parse_line(line))
        except ValueError:
            continue
    return rows


def make_preview(lines: Sequence[bytes], named_columns: Mapping[str, str]) -> DatasetPreview:
    """Return the preview of a file's first lines. Columns that are not named are guessed.

    Raises BadFile if no line is a valid row.
    """
    rows = parse_rows(lines)
    if not rows:
        raise BadFile(_missing_row_error(lines))
    mapping = guess_mapping(rows, named_columns)
    return DatasetPreview(
        columns=column_names(rows),
        mapping=mapping,
        rows=[row_preview(row, mapping) for row in islice(rows, SHOWN_ROWS)] if mapping else [],
        notes=unused_column_notes(rows, mapping.columns) if mapping else [],
        sample=b"".join(line + b"\n" for line in lines).decode(errors="replace"),
    )


def _missing_row_error(lines: Sequence[bytes]) -> str:
    if not lines:
        return f"has no row in its first {MAX_BYTES:,} bytes"
    try:
        parse_line(lines[0])
    except ValueError as error:
        return f"has no row: its first line {error}"
    return "has no row"


def row_preview(row: dict[str, Any], mapping: ColumnMapping) -> RowPreview:
    """Return a row as a problem would use it with these columns."""
    is_held_out = row.get("split") not in (None, "train")
    try:
        check_row(row, mapping.columns)
        prompt, answer = read_prompt(row, mapping.columns), str(read_answer(row, mapping.columns))
    except ValueError as error:
        return RowPreview(prompt="", answer="", is_held_out=is_held_out, error=str(error))
    answer = stated_answer(answer, marker=mapping.answer_after, form=mapping.answer_form)
    return RowPreview(
        prompt=question_text(prompt)[:MAX_SHOWN_CHARACTERS],
        answer=answer[:MAX_SHOWN_CHARACTERS],
        is_held_out=is_held_out,
        error="",
    )
