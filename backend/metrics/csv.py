"""Metrics as CSV: one row per step, one column per metric, numbers as numbers; written while it is read.

A window of steps at a time, each in a short transaction of its own: memory stays the same however long a run
is, and a client that reads slowly keeps no snapshot of the database open. What the file holds is decided when
it is begun: later attempts and new names of metrics are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from sqlalchemy import ColumnElement, Select, and_, func, select
from sqlalchemy.orm import Session

from backend.db.engine import Sessions, reading
from backend.db.models import Attempt, Metric, MetricKey
from backend.db.numbers import SPELLINGS
from backend.metrics.attempts import counts, limits_of
from backend.metrics.lineage import Stretch, lineages
from backend.metrics.reading import StoredRow

FORMULA_MARKS = tuple("=+-@\t\r\n＝＋－＠")
"""A spreadsheet may run a cell that begins with one of these."""

WINDOW_POINTS = 20_000
"""About so many points are in memory at a time."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of one run that belong to the file."""

    conditions: ColumnElement[bool]
    keys: Mapping[int, str]


def csv_lines(sessions: Sessions, run_id: str, *, all_attempts: bool) -> Iterator[str]:
    """The newest attempt's value of each step, or with a column `attempt` the rows of all attempts.

    A fork's steps begin with those of the runs it comes from; its attempts are its own alone.
    """
    with reading(sessions) as session:
        parts = _parts(session, run_id, all_attempts=all_attempts)
    names = sorted({name for part in parts for name in part.keys.values()})
    yield ",".join(["step", *(["attempt"] if all_attempts else []), *map(_quoted, names)]) + "\n"
    for part in parts:
        for rows in _windows(sessions, part):
            lines = _lines(rows, names, all_attempts=all_attempts)
            yield "".join(",".join(cells) + "\n" for cells in lines)


def _parts(session: Session, run_id: str, *, all_attempts: bool) -> list[_Part]:
    stretches = [Stretch(run_id)] if all_attempts else lineages(session, [run_id])[run_id]
    limits = limits_of(session, [part.run for part in stretches])
    newest = func.coalesce(func.max(Attempt.number), 2**31 - 1)
    found = []
    for part in stretches:
        attempt = session.scalar(select(newest).where(Attempt.run_id == part.run))
        own = and_(Metric.run_id == part.run, Metric.step <= part.last_step, Metric.attempt <= attempt)
        conditions = own if all_attempts else and_(own, counts(Metric, limits.get(part.run, ())))
        # One search in the key per name, where DISTINCT would read every row.
        has_any = select(Metric.step).where(conditions, Metric.key_id == MetricKey.id).exists()
        keys = session.execute(select(MetricKey.id, MetricKey.name).where(has_any))
        found.append(_Part(conditions, {row.id: row.name for row in keys}))
    return found


def _windows(sessions: Sessions, part: _Part) -> Iterator[Sequence[StoredRow]]:
    """The rows in the order of steps, those of a step together."""
    width = max(1, WINDOW_POINTS // max(1, len(part.keys)))
    after = -1
    while True:
        with reading(sessions) as session:
            first = _first_step(session, part, after) if part.keys else None
            if first is None:
                return
            after = first + width - 1
            rows = session.execute(_rows(part, first, after)).all()
        yield rows


def _first_step(session: Session, part: _Part, after: int) -> int | None:
    """The first step behind `after`; where a run has gaps they are passed over at once."""
    of_key = select(func.min(Metric.step)).where(
        part.conditions, Metric.key_id == MetricKey.id, Metric.step > after
    )
    firsts = select(of_key.scalar_subquery().label("step")).where(MetricKey.id.in_(part.keys)).subquery()
    first: int | None = session.scalar(select(func.min(firsts.c.step)))
    return first


def _rows(part: _Part, first: int, last: int) -> Select[int, int, str, int, float | None]:
    return (
        select(Metric.step, Metric.attempt, MetricKey.name, Metric.kind, Metric.value)
        .join(MetricKey, MetricKey.id == Metric.key_id)
        .where(part.conditions, Metric.key_id.in_(part.keys), Metric.step.between(first, last))
        .order_by(Metric.step, Metric.attempt, MetricKey.name)
    )


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
