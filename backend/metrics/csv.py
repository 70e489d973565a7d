"""Metrics as CSV: one row per step, one column per metric, numbers unquoted; streamed.

A window of steps at a time, each in a short transaction of its own: memory stays the same however long a run
is, and a client that reads slowly keeps no snapshot of the database open. What the file holds is decided when
it is begun: later attempts and new names of metrics are left out.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from sqlalchemy.orm import Session

from backend.metrics.lineage import Stretch, load_lineages
from backend.metrics.windows import RunPoints, StoredPoint, find_next_window, load_run_points, read_window
from backend.storage.engine import Sessions, reading
from backend.storage.numbers import SPELLINGS, number_kind

FORMULA_MARKS = tuple("=+-@\t\r\n＝＋－＠")
"""A spreadsheet may run a cell that begins with one of these."""


def csv_lines(sessions: Sessions, run_id: str, *, all_attempts: bool) -> Iterator[str]:
    """Yield the newest attempt's value of each step, or with a column `attempt` the rows of all attempts.

    A fork's steps begin with those of the runs it comes from; its attempts are its own alone.
    """
    with reading(sessions) as session:
        parts = _points_of_run(session, run_id, all_attempts=all_attempts)
    names = sorted({name for points in parts for name in points.keys.values()})
    yield ",".join(["step", *(["attempt"] if all_attempts else []), *map(_quote, names)]) + "\n"
    for points in parts:
        for rows in _windows(sessions, points):
            lines = _lines(rows, names, all_attempts=all_attempts)
            yield "".join(",".join(cells) + "\n" for cells in lines)


def _points_of_run(session: Session, run_id: str, *, all_attempts: bool) -> list[RunPoints]:
    stretches = [Stretch(run_id)] if all_attempts else load_lineages(session, [run_id])[run_id]
    return load_run_points(session, stretches, all_attempts=all_attempts)


def _windows(sessions: Sessions, points_of_run: RunPoints) -> Iterator[Sequence[StoredPoint]]:
    """Yield the points in the order of steps, those of a step together."""
    after = -1
    while True:
        with reading(sessions) as session:
            window = find_next_window(session, points_of_run, after)
            if window is None:
                return
            after = window[1]
            points = read_window(session, points_of_run, *window)
        yield points


def _lines(rows: Sequence[StoredPoint], names: Sequence[str], *, all_attempts: bool) -> Iterator[list[str]]:
    for key, group in groupby(rows, key=lambda row: row[: 2 if all_attempts else 1]):
        values = {name: _format_value(value) for _, _, name, value in group}
        yield [*map(str, key), *(values.get(name, "") for name in names)]


def _format_value(value: float) -> str:
    return SPELLINGS[number_kind(value)] or repr(value)


def _quote(text: str) -> str:
    """Return a text cell that no spreadsheet reads as a formula, quoted if any dialect of CSV requires it."""
    if text.startswith(FORMULA_MARKS):
        text = "'" + text
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',;"\t\r\n') else text
