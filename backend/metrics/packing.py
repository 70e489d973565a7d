"""The packing of points into the blocks that `blocks` reads."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from sqlalchemy import and_, bindparam, delete, func, insert, select, update
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from backend.db.engine import Sessions, reading
from backend.db.models import ALL_PACKED, NOT_BEGUN, Attempt, Metric, MetricBlock, MetricKey, Run
from backend.metrics import blocks
from backend.metrics.blocks import STEP, VALUE, Stored, points_of
from backend.metrics.thinning import OUTLINE_SHIFT, peaks

TASKS = 1_000
"""So many attempts are packed in one go."""

logger = logging.getLogger(__name__)

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

_NEXT = select(
    func.min(
        select(Metric.step)
        .where(
            Metric.run_id == bindparam("run"),
            Metric.key_id == MetricKey.id,
            Metric.step > bindparam("after"),
            Metric.step <= bindparam("last"),
            Metric.attempt == bindparam("attempt"),
        )
        .order_by(Metric.step)
        .limit(1)
        .scalar_subquery()
    )
).select_from(MetricKey)
"""The first step of any metric behind a gap."""

_COUNT = select(func.count()).where(
    Metric.run_id == bindparam("run"),
    Metric.key_id.in_(select(MetricKey.id)),
    Metric.step.between(bindparam("first"), bindparam("last")),
    Metric.attempt == bindparam("attempt"),
)


@dataclass(frozen=True, slots=True)
class Task:
    """Points of an attempt that can be packed."""

    run: str
    attempt: int
    packed: int
    """How far it is packed."""
    first: int
    last: int
    """The last step of which no more is expected; ALL_PACKED where the attempt has ended."""


def packable(session: Session) -> list[Task]:
    """The attempts whose points can be packed."""
    open_ones = select(Attempt).where(Attempt.packed_step < ALL_PACKED)
    attempts = session.scalars(open_ones.order_by(Attempt.run_id, Attempt.number).limit(TASKS)).all()
    own = Run.id.in_({attempt.run_id for attempt in attempts})
    runs = {run.id: run for run in session.scalars(select(Run).where(own, Run.deleting_at.is_(None)))}
    tasks = (_task(attempt, runs[attempt.run_id]) for attempt in attempts if attempt.run_id in runs)
    return [task for task in tasks if task.first <= task.last]


def _task(attempt: Attempt, run: Run) -> Task:
    last = (run.last_step + 1) // blocks.BLOCK * blocks.BLOCK - 1
    if attempt.number < run.attempt or run.status != "running":
        last = ALL_PACKED
    elif attempt.from_step == NOT_BEGUN:  # until it begins, the run's last step is that of the one before
        last = attempt.packed_step
    return Task(attempt.run_id, attempt.number, attempt.packed_step, attempt.packed_step + 1, last)


def unpack(session: Session, run: str, attempt: int, step: int) -> None:
    """Take back the blocks of an attempt from this step on; part of the transaction that writes a row there.

    The attempt stays locked: nobody packs what that transaction has not committed.
    """
    own = and_(Attempt.run_id == run, Attempt.number == attempt)
    packed = session.scalar(select(Attempt.packed_step).where(own).with_for_update(key_share=True))
    if packed is None or packed < step:
        return
    number = step // blocks.BLOCK
    session.execute(update(Attempt).where(own).values(packed_step=number * blocks.BLOCK - 1))
    its = and_(MetricBlock.run_id == run, MetricBlock.attempt == attempt, MetricBlock.number >= number)
    session.execute(delete(MetricBlock).where(its))


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
        piece = _read_piece(sessions, task, first)
        if not _store(sessions, task, piece, packed):
            return
        yield
        packed, first = piece.last, piece.last + 1


@dataclass(frozen=True, slots=True)
class _Piece:
    """One block of every metric that has any, and the steps behind it that have no row."""

    first: int
    last: int
    points: Mapping[int, Stored]
    """By the metric's key."""


def _read_piece(sessions: Sessions, task: Task, first: int) -> _Piece:
    end = min(first // blocks.BLOCK * blocks.BLOCK + blocks.BLOCK - 1, task.last)
    own = {"run": task.run, "attempt": task.attempt}
    with reading(sessions) as session:
        keys = session.scalars(select(MetricKey.id)).all()
        rows = session.execute(_PIECE, {**own, "first": first, "last": end, "keys": keys}).all()
        points = {key: points_of([row[1:] for row in its]) for key, its in groupby(rows, lambda row: row[0])}
        if any(each.steps[-1] == end for each in points.values()):
            return _Piece(first, end, points)
        following = session.scalar(_NEXT, {**own, "after": end, "last": task.last})
    return _Piece(first, task.last if following is None else following - 1, points)


def _rows(task: Task, piece: _Piece) -> list[dict[str, Any]]:
    return [
        {
            "run_id": task.run,
            "key_id": key,
            "attempt": task.attempt,
            "number": piece.first // blocks.BLOCK,
            "last_step": int(each.steps[-1]),
            "points": len(each.steps),
            "outline": _outline(each),
            "data": _data(each),
        }
        for key, each in piece.points.items()
    ]


def _data(points: Stored) -> bytes:
    is_dense = points.steps[-1] - points.steps[0] + 1 == len(points.steps)
    return points.values.astype(VALUE).tobytes() if is_dense else _with_steps(points)


def _outline(points: Stored) -> bytes:
    """The peaks, where they are few and nothing is strange."""
    if not np.isfinite(points.values).all():
        return b""
    kept = points.at(peaks(points.steps, OUTLINE_SHIFT, points.values))
    return _with_steps(kept) if 3 * len(kept.steps) <= len(points.steps) else b""


def _with_steps(points: Stored) -> bytes:
    return points.values.astype(VALUE).tobytes() + points.steps.astype(STEP).tobytes()


def _store(sessions: Sessions, task: Task, piece: _Piece, packed: int) -> bool:
    """Store a piece and how far it reaches; False where it is not what is there (any more).

    Then the run is being deleted, another one packs it, or rows were written since it was read.
    """
    rows = _rows(task, piece)
    with sessions.begin() as session:
        here = select(Run.id).where(Run.id == task.run, Run.deleting_at.is_(None))
        if session.scalar(here.with_for_update(key_share=True)) is None:
            return False
        mine = and_(Attempt.run_id == task.run, Attempt.number == task.attempt, Attempt.packed_step == packed)
        if session.scalar(select(Attempt.number).where(mine).with_for_update(key_share=True)) is None:
            return False
        place = {"run": task.run, "attempt": task.attempt, "first": piece.first, "last": piece.last}
        if session.scalar(_COUNT, place) != sum(row["points"] for row in rows):
            return False
        session.execute(update(Attempt).where(mine).values(packed_step=piece.last))
        if rows:
            session.execute(insert(MetricBlock), rows)
    return True
