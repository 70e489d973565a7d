"""Stream the metrics of a run as CSV with one row per step and one column per metric.

Each window of steps is read in a separate short transaction. Memory does not grow with the length of the run,
and a slow client does not keep a snapshot of the database open. The content is determined at the start, so
that later attempts and new metrics are left out.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from sqlalchemy.orm import Session

from backend.metrics.lineage import LineageSegment, load_lineages
from backend.metrics.windows import RunPoints, StoredPoint, find_next_window, load_run_points, read_window
from backend.storage.engine import Sessions, open_read_session
from backend.storage.numbers import NAME_BY_KIND, number_kind

FORMULA_MARKS = tuple("=+-@\t\r\n＝＋－＠")
"""First characters with which a spreadsheet may evaluate a cell as a formula."""


def csv_lines(sessions: Sessions, run_id: str, *, all_attempts: bool) -> Iterator[str]:
    """Yield CSV lines with the newest value of each step, or with the rows of all attempts.

    The steps of a fork begin with those of its ancestors. With `all_attempts`, there is a column `attempt`
    and only attempts of the run itself are included.
    """
    with open_read_session(sessions) as session:
        points_by_run = _points_of_run(session, run_id, all_attempts=all_attempts)
    names = sorted({name for points in points_by_run for name in points.keys.values()})
    yield ",".join(["step", *(["attempt"] if all_attempts else []), *map(_quote, names)]) + "\n"
    for points in points_by_run:
        for rows in _windows(sessions, points):
            lines = _lines(rows, names, all_attempts=all_attempts)
            yield "".join(",".join(cells) + "\n" for cells in lines)


def _points_of_run(session: Session, run_id: str, *, all_attempts: bool) -> list[RunPoints]:
    segments = [LineageSegment(run_id)] if all_attempts else load_lineages(session, [run_id])[run_id]
    return load_run_points(session, segments, all_attempts=all_attempts)


def _windows(sessions: Sessions, points_of_run: RunPoints) -> Iterator[Sequence[StoredPoint]]:
    """Yield lists of points in the order of steps. The points of a step are in one list."""
    last_step = -1
    while True:
        with open_read_session(sessions) as session:
            window = find_next_window(session, points_of_run, last_step)
            if window is None:
                return
            last_step = window[1]
            points = read_window(session, points_of_run, *window)
        yield points


def _lines(rows: Sequence[StoredPoint], names: Sequence[str], *, all_attempts: bool) -> Iterator[list[str]]:
    for key, group in groupby(rows, key=lambda row: row[: 2 if all_attempts else 1]):
        values = {name: _format_value(value) for _, _, name, value in group}
        yield [*map(str, key), *(values.get(name, "") for name in names)]


def _format_value(value: float) -> str:
    return NAME_BY_KIND[number_kind(value)] or repr(value)


def _quote(text: str) -> str:
    """Return a cell that spreadsheets do not evaluate as a formula, quoted if a CSV dialect requires it."""
    if text.startswith(FORMULA_MARKS):
        text = "'" + text
    return (
        '"' + text.replace('"', '""') + '"' if any(character in text for character in ',;"\t\r\n') else text
    )
