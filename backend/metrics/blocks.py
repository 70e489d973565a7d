"""Points once more, packed for reading: a database hands over a million rows in seconds, a thousand blocks in
milliseconds.

The rows of `metric` stay the truth. What an attempt cannot change any more (all but its last steps while it
trains, everything once it has ended) is packed by the reconciler, BLOCK steps of a metric at a time. Of each
metric, blocks are made in the order of attempts and of steps, which follow one another without a gap; so
whoever reads takes the blocks that are there and the rows behind the last of them. To have all blocks made
again, in one transaction: `UPDATE attempt SET packed_step = -1; DELETE FROM metric_block`.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import and_, bindparam, func, insert, select, update
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from backend.database import Sessions, reading
from backend.metrics.values import from_stored
from backend.models import ALL_PACKED, NOT_BEGUN, Attempt, Metric, MetricBlock, MetricKey, Run

BLOCK = 1_000
"""Steps of a block."""

TASKS = 1_000
"""So many attempts are packed in one go."""

STEP, VALUE = np.dtype("<i4"), np.dtype("<f8")
"""In a block. NaN, the infinities and -0.0 need no kind here."""

logger = logging.getLogger(__name__)

_TAIL = (
    select(Metric.step, Metric.attempt, Metric.kind, Metric.value)
    .where(
        Metric.run_id == bindparam("run"),
        Metric.key_id == bindparam("key"),
        Metric.step > bindparam("after"),
        Metric.step <= bindparam("last"),
        Metric.attempt >= bindparam("attempt"),
    )
    .order_by(Metric.step, Metric.attempt)
)
_PIECE = (
    select(Metric.key_id, Metric.step, Metric.attempt, Metric.kind, Metric.value)
    .where(
        Metric.run_id == bindparam("run"),
        Metric.key_id.in_(bindparam("keys", expanding=True)),  # with it the primary key finds the piece
        Metric.step.between(bindparam("first"), bindparam("last")),
        Metric.attempt == bindparam("attempt"),
    )
    .order_by(Metric.key_id, Metric.step)
)


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
    is_all: bool = False
    """Whether the run has no point outside of its blocks."""


NOTHING = Packed(Stored(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)))


# ------------------------------------------------------------ reading


def read_blocks(
    session: Session, runs: Collection[str], keys: Collection[int]
) -> dict[tuple[str, int], Packed]:
    """What there is in blocks of each (run, key of a metric)."""
    attempts = select(Attempt.run_id).where(Attempt.run_id.in_(runs)).group_by(Attempt.run_id)
    whole = set(session.scalars(attempts.having(func.min(Attempt.packed_step) >= ALL_PACKED)))
    query = (
        select(
            MetricBlock.run_id,
            MetricBlock.key_id,
            MetricBlock.attempt,
            MetricBlock.last_step,
            MetricBlock.points,
            MetricBlock.data,
        )
        .where(MetricBlock.run_id.in_(runs), MetricBlock.key_id.in_(keys))
        .order_by(MetricBlock.run_id, MetricBlock.key_id, MetricBlock.attempt, MetricBlock.number)
    )
    rows = session.execute(query, execution_options={"binary": True})
    by_place = groupby(rows, key=lambda row: (row[0], row[1]))
    return {place: _joined(list(blocks), is_all=place[0] in whole) for place, blocks in by_place}


def _joined(blocks: Sequence[Any], *, is_all: bool) -> Packed:
    _, _, attempts, ends, counts, data = zip(*blocks, strict=True)
    if attempts[0] == attempts[-1] and _is_gapless(ends, counts, data):
        first, last = ends[0] - counts[0] + 1, ends[-1]
        steps, values = np.arange(first, last + 1), np.frombuffer(b"".join(data), VALUE)
        stored = Stored(steps, np.broadcast_to(attempts[0], len(steps)), values)
    else:
        pieces, numbers = zip(*(decoded(*block[3:]) for block in blocks), strict=True)
        steps = np.concatenate(pieces, dtype=np.int64)
        stored = Stored(steps, np.repeat(attempts, counts), np.concatenate(numbers))
    return Packed(stored, attempts[-1], ends[-1], is_all)


def _is_gapless(ends: Sequence[int], counts: Sequence[int], data: Sequence[bytes]) -> bool:
    """Whether no step is missing in the blocks of one attempt: the usual case, and a big one's quick way."""
    total = sum(counts)
    return total * VALUE.itemsize == sum(map(len, data)) and total == ends[-1] - ends[0] + counts[0]


def decoded(last: int, count: int, data: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    """Steps and values of a block, see MetricBlock."""
    values = np.frombuffer(data, VALUE, count)
    if len(data) == values.nbytes:
        return np.arange(last - count + 1, last + 1), values
    return np.frombuffer(data, STEP, offset=values.nbytes), values


def read_tail(session: Session, run: str, key: int, packed: Packed, *, after: int, last: int) -> Stored:
    """The points up to `last` that are not in blocks; none of them that counts has a step up to `after`."""
    if packed.is_all:
        return NOTHING.points
    place = {"run": run, "key": key, "attempt": packed.attempt, "after": after, "last": last}
    rows = _points(session.execute(_TAIL, place).all())
    is_new = (rows.attempts > packed.attempt) | (rows.steps > packed.last_step)
    return rows if is_new.all() else rows.at(is_new)


def _points(rows: Sequence[Any]) -> Stored:
    if not rows:
        return NOTHING.points
    steps, attempts, kinds, values = (np.array(column) for column in zip(*rows, strict=True))
    values = values.astype(np.float64)  # NULL becomes NaN
    return Stored(steps, attempts, from_stored(kinds, values) if kinds.any() else values)


# ------------------------------------------------------------ packing


@dataclass(frozen=True, slots=True)
class Task:
    """Points of an attempt that can be packed."""

    run: str
    attempt: int
    packed: int
    """How far it is packed."""
    first: int
    last: int
    """The last step that cannot change any more; ALL_PACKED where the attempt has ended."""


def packable(session: Session) -> list[Task]:
    """What there is to pack; attempts of a run in their order, lest a block be made before an older one."""
    open_ones = select(Attempt).where(Attempt.packed_step < ALL_PACKED)
    attempts = session.scalars(open_ones.order_by(Attempt.run_id, Attempt.number).limit(TASKS)).all()
    own = Run.id.in_({attempt.run_id for attempt in attempts})
    runs = {run.id: run for run in session.scalars(select(Run).where(own, Run.deleting_at.is_(None)))}
    tasks = (_task(attempt, runs[attempt.run_id]) for attempt in attempts if attempt.run_id in runs)
    return [task for task in tasks if task.first <= task.last]


def _task(attempt: Attempt, run: Run) -> Task:
    has_ended = attempt.number < run.attempt or run.status != "running"
    # Before an attempt has begun, the run's last step is that of the one before.
    begun = -1 if has_ended and attempt.from_step == NOT_BEGUN else attempt.from_step
    return Task(
        run=run.id,
        attempt=attempt.number,
        packed=attempt.packed_step,
        first=max(attempt.packed_step, begun) + 1,
        last=ALL_PACKED if has_ended else (run.last_step + 1) // BLOCK * BLOCK - 1,
    )


def pack(sessions: Sessions, tasks: Sequence[Task]) -> Iterator[None]:
    """Do the tasks; yields after each piece. Two that do it at once do no harm.

    A run that cannot be packed is left for later; when the database is away, all are.
    """
    failed = set()
    for task in tasks:
        try:
            if task.run not in failed:
                yield from _pack_attempt(sessions, task)
        except SQLAlchemyError as error:
            logger.warning("the points of run %s cannot be packed: %s", task.run, str(error).splitlines()[0])
            if isinstance(error, OperationalError):
                return
            failed.add(task.run)


def _pack_attempt(sessions: Sessions, task: Task) -> Iterator[None]:
    first, packed = task.first, task.packed
    while first <= task.last:
        end = first // BLOCK * BLOCK + BLOCK - 1
        blocks = _blocks(sessions, task, first, end)
        # Steps follow one another: behind a block that is not full there are none.
        reached = end if any(block["last_step"] == end for block in blocks) else task.last
        if not _store(sessions, task, blocks, packed, reached):
            return
        yield
        packed, first = reached, reached + 1


def _blocks(sessions: Sessions, task: Task, first: int, end: int) -> list[dict[str, Any]]:
    """The rows of one block of every metric that has any."""
    piece = {"run": task.run, "attempt": task.attempt, "first": first, "last": end}
    with reading(sessions) as session:
        keys = session.scalars(select(MetricKey.id)).all()
        rows = session.execute(_PIECE, {**piece, "keys": keys}).all()
    points = {key: _points([row[1:] for row in own]) for key, own in groupby(rows, key=lambda row: row[0])}
    newest = max((int(each.steps[-1]) for each in points.values()), default=-1)
    return [
        {
            "run_id": task.run,
            "key_id": key,
            "attempt": task.attempt,
            "number": first // BLOCK,
            "last_step": newest,
            "points": len(each.steps),
            "data": _data(each, newest),
        }
        for key, each in points.items()
    ]


def _data(points: Stored, last: int) -> bytes:
    values = points.values.astype(VALUE).tobytes()
    is_dense = last - points.steps[0] + 1 == len(points.steps)
    return values if is_dense else values + points.steps.astype(STEP).tobytes()


def _store(
    sessions: Sessions, task: Task, blocks: Sequence[dict[str, Any]], packed: int, reached: int
) -> bool:
    """Store blocks and how far they reach; False where the run is being deleted or another one packs it."""
    with sessions.begin() as session:
        here = select(Run.id).where(Run.id == task.run, Run.deleting_at.is_(None))
        if session.scalar(here.with_for_update(key_share=True)) is None:
            return False
        mine = and_(Attempt.run_id == task.run, Attempt.number == task.attempt, Attempt.packed_step == packed)
        step = update(Attempt).where(mine).values(packed_step=reached).returning(Attempt.number)
        if session.scalar(step) is None:
            return False
        if blocks:
            session.execute(insert(MetricBlock), blocks)
    return True
