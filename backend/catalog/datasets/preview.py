"""The first rows of a file that may be uploaded: as they are, and as a problem would use them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from backend.base.documented import Documented
from backend.catalog.datasets.guess import Mapped, columns_of, guessed, notes
from backend.catalog.datasets.unpacking import BadFile
from backend.config.columns import answer_of, prompt_of, stated_answer
from backend.config.messages import question_text
from backend.config.rows import Line, LineSplitter, check_row, parse_line

MAX_ROWS = 20
"""Number of rows that a guess reads."""

MAX_BYTES = 1_000_000
"""Bytes that are read for them."""

SHOWN_ROWS = 3
SHOWN_CHARACTERS = 1_000
"""Maximum number of characters shown of each question and of each answer."""


class RowPreview(Documented):
    """A row as a problem would use it."""

    prompt: str
    answer: str
    """Reference answer for grading."""
    is_held_out: bool
    """Whether its own `split` says so."""
    error: str
    """Reason why the row cannot be used; empty if it can."""


class DatasetPreview(Documented):
    """The beginning of a file: its columns, the guess or the choice, and three rows by it."""

    columns: list[str]
    """Up to 200 names; fields of objects as `a.b`."""
    mapping: Mapped | None
    """Columns as named, the others as guessed; null: nothing was recognised."""
    rows: list[RowPreview]
    notes: list[str]
    sample: str
    """The rows that were looked at as JSONL, to be asked about again with other columns."""


def beginning(pieces: Iterator[bytes], *, is_cut: bool = False) -> tuple[list[bytes], Iterator[bytes]]:
    """Return the first lines of a file that are not blank, and all pieces; raises BadFile.

    Of a file that is cut, what is wrong behind the first line, and a last line without an end, are no matter.
    """
    lines, splitter, read, size = list[bytes](), LineSplitter(), list[bytes](), 0
    try:
        for piece in pieces:
            read.append(piece)
            size += len(piece)
            lines += _texts(splitter.feed(piece))
            if len(lines) >= MAX_ROWS or size >= MAX_BYTES:
                return lines[:MAX_ROWS], chain(read, pieces)
    except BadFile:
        if not (is_cut and lines):
            raise
    if not (is_cut and lines):
        lines += _texts(splitter.finish())
    return lines[:MAX_ROWS], iter(read)


def _texts(lines: Iterator[Line]) -> list[bytes]:
    return [line.text for line in lines if line.text.strip()]


def parsed(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return the rows on lines that hold one."""
    rows = []
    for line in lines:
        try:
            rows.append(parse_line(line))
        except ValueError:
            continue
    return rows


def preview_of(lines: Sequence[bytes], named: Mapping[str, str]) -> DatasetPreview:
    """Return the preview of a file by its first lines, with columns as named, the others as guessed.

    Raises BadFile where no line holds a row.
    """
    rows = parsed(lines)
    if not rows:
        raise BadFile(_no_row(lines))
    mapping = guessed(rows, named)
    return DatasetPreview(
        columns=columns_of(rows),
        mapping=mapping,
        rows=[row_preview(row, mapping) for row in islice(rows, SHOWN_ROWS)] if mapping else [],
        notes=notes(rows, mapping.columns) if mapping else [],
        sample=b"".join(line + b"\n" for line in lines).decode(errors="replace"),
    )


def _no_row(lines: Sequence[bytes]) -> str:
    if not lines:
        return f"has no row in its first {MAX_BYTES:,} bytes"
    try:
        parse_line(lines[0])
    except ValueError as error:
        return f"has no row: its first line {error}"
    return "has no row"


def row_preview(row: dict[str, Any], mapping: Mapped) -> RowPreview:
    """Return one row by these columns."""
    held_out = row.get("split") not in (None, "train")
    try:
        check_row(row, mapping.columns)
        prompt, answer = prompt_of(row, mapping.columns), str(answer_of(row, mapping.columns))
    except ValueError as error:
        return RowPreview(prompt="", answer="", is_held_out=held_out, error=str(error))
    answer = stated_answer(answer, after=mapping.answer_after, form=mapping.answer_form)
    return RowPreview(
        prompt=question_text(prompt)[:SHOWN_CHARACTERS],
        answer=answer[:SHOWN_CHARACTERS],
        is_held_out=held_out,
        error="",
    )
