"""Metrics as CSV: one row per step, one column per metric, numbers as numbers."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from sqlalchemy.orm import Session

from backend.metrics.reading import StoredRow, all_rows, valid_rows
from backend.metrics.values import SPELLINGS

FORMULA_MARKS = tuple("=+-@\t\r\n＝＋－＠")
"""A spreadsheet may run a cell that begins with one of these."""


def metrics_csv(session: Session, run_id: str, *, all_attempts: bool) -> str:
    """The newest attempt's value of each step, or with a column `attempt` the rows of all attempts.

    A fork's steps begin with those of the runs it comes from; its attempts are its own alone.
    """
    found = all_rows(session, run_id) if all_attempts else valid_rows(session, run_id)
    rows = list(found)
    names = sorted({row[2] for row in rows})
    head = ["step", *(["attempt"] if all_attempts else []), *map(_quoted, names)]
    lines = [",".join(head), *(",".join(cells) for cells in _lines(rows, names, all_attempts=all_attempts))]
    return "\n".join(lines) + "\n"


def _lines(rows: Sequence[StoredRow], names: Sequence[str], *, all_attempts: bool) -> Iterator[list[str]]:
    for key, group in groupby(rows, key=lambda row: row[: 2 if all_attempts else 1]):
        values = {name: _spelled(kind, value) for _, _, name, kind, value in group}
        yield [*map(str, key), *(values.get(name, "") for name in names)]


def _spelled(kind: int, value: float | None) -> str:
    return SPELLINGS[kind] or repr(value)


def _quoted(text: str) -> str:
    """A text cell: never a formula to a spreadsheet, quoted where any kind of CSV asks for it."""
    if text.startswith(FORMULA_MARKS):
        text = "'" + text
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',;"\t\r\n') else text
