"""Preview of a file before its upload: its first rows, and the problems that they would become."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from backend.base.documented import Documented
from backend.catalog.datasets.guess import Mapped, column_names, guess_mapping, unused_column_notes
from backend.catalog.datasets.unpacking import BadFile
from backend.config.columns import read_answer, read_prompt, stated_answer
from backend.config.messages import question_text
from backend.config.rows import Line, LineSplitter, check_row, parse_line

MAX_ROWS = 20
"""Number of rows that the preview reads."""

MAX_BYTES = 1_000_000
"""Maximum number of bytes that the preview reads."""

SHOWN_ROWS = 3
SHOWN_CHARACTERS = 1_000
"""Maximum number of characters shown of each question and of each answer."""


class RowPreview(Documented):
    """A row as a problem would use it."""

    prompt: str
    answer: str
    """Reference answer for grading."""
    is_held_out: bool
    """Whether the row's field `split` marks it as held out."""
    error: str
    """Reason why the row cannot be used; empty if it can."""


class DatasetPreview(Documented):
    """Preview of a file: its columns, their mapping, and three rows as prompts."""

    columns: list[str]
    """Up to 200 names; fields of objects as `a.b`."""
    mapping: Mapped | None
    """Named columns, with guesses for the others; null if no columns could be guessed."""
    rows: list[RowPreview]
    notes: list[str]
    sample: str
    """The read rows as JSONL, so that they can be previewed again with other columns."""


def read_first_lines(pieces: Iterator[bytes], *, is_cut: bool = False) -> tuple[list[bytes], Iterator[bytes]]:
    """Return the first lines of a file that are not blank, and all pieces; raises BadFile.

    If the file is cut, errors after its first line and an incomplete last line are ignored.
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


def parse_rows(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return the rows of all lines that are JSON objects."""
    rows = []
    for line in lines:
        try:
            rows.append(parse_line(line))
        except ValueError:
            continue
    return rows


def make_preview(lines: Sequence[bytes], named: Mapping[str, str]) -> DatasetPreview:
    """Return the preview of a file's first lines. Columns that are not named are guessed.

    Raises BadFile if no line holds a row.
    """
    rows = parse_rows(lines)
    if not rows:
        raise BadFile(_missing_row_error(lines))
    mapping = guess_mapping(rows, named)
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


def row_preview(row: dict[str, Any], mapping: Mapped) -> RowPreview:
    """Return one row as a problem would use it with these columns."""
    held_out = row.get("split") not in (None, "train")
    try:
        check_row(row, mapping.columns)
        prompt, answer = read_prompt(row, mapping.columns), str(read_answer(row, mapping.columns))
    except ValueError as error:
        return RowPreview(prompt="", answer="", is_held_out=held_out, error=str(error))
    answer = stated_answer(answer, after=mapping.answer_after, form=mapping.answer_form)
    return RowPreview(
        prompt=question_text(prompt)[:SHOWN_CHARACTERS],
        answer=answer[:SHOWN_CHARACTERS],
        is_held_out=held_out,
        error="",
    )
