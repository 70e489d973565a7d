"""Points once more, packed for reading: a database hands over a million rows in seconds, a thousand blocks in
milliseconds.

The rows of `metric` stay the truth. What an attempt cannot change any more (all but its last steps while it
trains, everything once it has ended) is packed by the reconciler, BLOCK steps of a metric at a time. Of each
metric and attempt blocks are made in the order of the steps and of the attempts, so whoever reads takes the
blocks that are there and the rows behind the last of them. Blocks can be deleted whenever nobody packs; with
`UPDATE attempt SET packed_step = -1` they are made again.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import and_, bindparam, case, or_, select, update
from sqlalchemy.orm import Session

from backend.database import Sessions, insert_into, reading
from backend.metrics.values import from_stored
from backend.models import ALL_PACKED, NOT_BEGUN, Attempt, Metric, MetricBlock, MetricKey, Run

BLOCK = 1_000
"""Steps of a block."""

TASKS = 1_000
"""So many attempts are packed in one go."""

POINT = np.dtype([("step", "<i4"), ("value", "<f8")])
"""A point in a block. NaN, the infinities and -0.0 need no kind here."""

_COLUMNS = select(Metric.step, Metric.attempt, Metric.kind, Metric.value)
_TAIL = _COLUMNS.where(
    Metric.run_id == bindparam("run"), Metric.key_id == bindparam("key"), Metric.step > bindparam("after")
).order_by(Metric.step, Metric.attempt)
_PIECE = _COLUMNS.where(
    Metric.run_id == bindparam("run"),
    Metric.key_id == bindparam("key"),
    Metric.step.between(bindparam("first"), bindparam("last")),
    Metric.attempt == bindparam("attempt"),
).order_by(Metric.step)


@dataclass(frozen=True, slots=True)
class Stored:
    """Points of one metric of one run, of any attempts, also such as are hidden."""

    steps: NDArray[np.int64]
    attempts: NDArray[np.int64]
    values: NDArray[np.float64]

    def __add__(self, other: "Stored") -> "Stored":
        if not len(other.steps):
            return self
        return Stored(
            np.concatenate([self.steps, other.steps]),
            np.concatenate([self.attempts, other.attempts]),
            np.concatenate([self.values, other.values]),
        )

    def at(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> "Stored":
        """Only those points."""
        return Stored(self.steps[which], self.attempts[which], self.values[which])


@dataclass(frozen=True, slots=True)
class Packed:
    """The blocks of one metric of one run, in one."""

    points: Stored
    attempt: int = 0
    """Of the newest block; all that older attempts have is in blocks."""
    last_step: int = -1
    """Up to here that attempt's points are in blocks."""


NOTHING = Packed(Stored(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)))


# ------------------------------------------------------------ reading


def read_blocks(
    session: Session, runs: Collection[str], keys: Collection[int]
) -> dict[tuple[str, int], Packed]:
    """What there is in blocks of each (run, key of a metric)."""
    query = (
        select(
            MetricBlock.run_id,
            MetricBlock.key_id,
            MetricBlock.attempt,
            MetricBlock.last_step,
            MetricBlock.data,
        )
        .where(MetricBlock.run_id.in_(runs), MetricBlock.key_id.in_(keys))
        .order_by(MetricBlock.run_id, MetricBlock.key_id, MetricBlock.attempt, MetricBlock.number)
    )
    rows = _fetch(session, query)
    return {place: _joined(list(blocks)) for place, blocks in groupby(rows, key=lambda row: (row[0], row[1]))}


def _joined(blocks: Sequence[Any]) -> Packed:
    attempts, ends, data = zip(*(block[2:] for block in blocks), strict=True)
    points = [np.frombuffer(each, POINT) for each in data]
    stored = Stored(
        np.concatenate([each["step"] for each in points], dtype=np.int64),
        np.repeat(attempts, [len(each) for each in points]),
        np.concatenate([each["value"] for each in points]),
    )
    return Packed(stored, attempts[-1], ends[-1])


def read_tail(session: Session, run: str, key: int, packed: Packed, after: int) -> Stored:
    """The points that are not in blocks; none of them that counts has a step up to `after`."""
    rows = _points(_fetch(session, _TAIL, run=run, key=key, after=after))
    is_new = (rows.attempts > packed.attempt) | (
        (rows.attempts == packed.attempt) & (rows.steps > packed.last_step)
    )
    return rows if is_new.all() else rows.at(is_new)


def _points(rows: Sequence[Any]) -> Stored:
    if not rows:
        return NOTHING.points
    steps, attempts, kinds, values = (np.array(column) for column in zip(*rows, strict=True))
    values = values.astype(np.float64)  # NULL becomes NaN
    return Stored(steps, attempts, from_stored(kinds, values) if kinds.any() else values)


def _fetch(session: Session, query: Any, **parameters: Any) -> Sequence[Any]:
    """Straight from the driver: half a million rows as SQLAlchemy's own take seconds."""
    cursor: Any = session.connection().execute(query, parameters).cursor
    rows: Sequence[Any] = cursor.fetchall()
    return rows


# ------------------------------------------------------------ packing


@dataclass(frozen=True, slots=True)
class Task:
    """Points of an attempt that can be packed."""

    run: str
    attempt: int
    first: int
    last: int
    """The last step that cannot change any more; ALL_PACKED where the attempt has ended."""


def pack(sessions: Sessions) -> Iterator[None]:
    """Pack what can be packed; yields after each piece. Two that do it at once do no harm."""
    for task in _tasks(sessions):
        yield from _pack_attempt(sessions, task)


def _tasks(sessions: Sessions) -> list[Task]:
    """Those of a run in the order of their attempts, so that no block is made before an older one."""
    has_ended = or_(Attempt.number < Run.attempt, Run.status != "running")
    begun = case((Attempt.packed_step > Attempt.from_step, Attempt.packed_step), else_=Attempt.from_step)
    has_block = Run.last_step - begun >= BLOCK
    query = (
        select(Attempt, Run.last_step, has_ended)
        .join(Run, Run.id == Attempt.run_id)
        .where(Attempt.packed_step < ALL_PACKED, Run.deleting_at.is_(None), or_(has_ended, has_block))
        .order_by(Attempt.run_id, Attempt.number)
        .limit(TASKS)
    )
    with reading(sessions) as session:
        rows = session.execute(query).all()
    found = []
    for attempt, last_step, ended in rows:
        has_begun = attempt.from_step < NOT_BEGUN
        first = max(attempt.packed_step, attempt.from_step if has_begun else -1) + 1
        last = ALL_PACKED if ended else (last_step + 1) // BLOCK * BLOCK - 1
        found.append(Task(attempt.run_id, attempt.number, first, last))
    return found


def _pack_attempt(sessions: Sessions, task: Task) -> Iterator[None]:
    first = task.first
    while first <= task.last:
        end = first // BLOCK * BLOCK + BLOCK - 1
        blocks = _blocks(sessions, task, first, end)
        # Steps follow one another: behind a block without any there are none.
        packed = end if blocks else task.last
        if not _store(sessions, task, blocks, packed):
            return
        yield
        first = packed + 1


def _blocks(sessions: Sessions, task: Task, first: int, end: int) -> list[dict[str, Any]]:
    """The rows of one block of every metric that has any."""
    piece = {"run": task.run, "attempt": task.attempt, "first": first, "last": end}
    with reading(sessions) as session:
        keys = session.scalars(select(MetricKey.id)).all()
        points = {key: _points(_fetch(session, _PIECE, key=key, **piece)) for key in keys}
    newest = max(int(each.steps.max(initial=-1)) for each in points.values()) if points else -1
    return [
        {
            "run_id": task.run,
            "key_id": key,
            "attempt": task.attempt,
            "number": first // BLOCK,
            "last_step": newest,
            "data": _data(each),
        }
        for key, each in points.items()
        if len(each.steps)
    ]


def _data(points: Stored) -> bytes:
    packed = np.empty(len(points.steps), POINT)
    packed["step"], packed["value"] = points.steps, points.values
    return packed.tobytes()


def _store(sessions: Sessions, task: Task, blocks: Sequence[dict[str, Any]], packed: int) -> bool:
    """Store blocks and how far they reach; False where the run is being deleted."""
    with sessions.begin() as session:
        here = select(Run.id).where(Run.id == task.run, Run.deleting_at.is_(None))
        if session.scalar(here.with_for_update(key_share=True)) is None:
            return False
        if blocks:
            session.execute(insert_into(session, MetricBlock.__table__).on_conflict_do_nothing(), blocks)
        mine = and_(Attempt.run_id == task.run, Attempt.number == task.attempt)
        session.execute(update(Attempt).where(mine).values(packed_step=packed))
    return True
