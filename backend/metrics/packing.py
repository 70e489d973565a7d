"""Makes the blocks of points that `blocks` reads."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from sqlalchemy import and_, bindparam, insert, select, update
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from backend.database import Sessions, reading
from backend.metrics import blocks
from backend.metrics.blocks import STEP, VALUE, Stored, points_of
from backend.metrics.series import OUTLINE_SHIFT, peaks
from backend.models import ALL_PACKED, NOT_BEGUN, Attempt, Metric, MetricBlock, MetricKey, Run

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
        last=ALL_PACKED if has_ended else (run.last_step + 1) // blocks.BLOCK * blocks.BLOCK - 1,
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
        end = first // blocks.BLOCK * blocks.BLOCK + blocks.BLOCK - 1
        made = _blocks(sessions, task, first, end)
        # Steps follow one another: behind a block that is not full there are none.
        reached = end if any(block["last_step"] == end for block in made) else task.last
        if not _store(sessions, task, made, packed, reached):
            return
        yield
        packed, first = reached, reached + 1


def _blocks(sessions: Sessions, task: Task, first: int, end: int) -> list[dict[str, Any]]:
    """The rows of one block of every metric that has any."""
    piece = {"run": task.run, "attempt": task.attempt, "first": first, "last": end}
    with reading(sessions) as session:
        keys = session.scalars(select(MetricKey.id)).all()
        rows = session.execute(_PIECE, {**piece, "keys": keys}).all()
    points = {key: points_of([row[1:] for row in own]) for key, own in groupby(rows, key=lambda row: row[0])}
    newest = max((int(each.steps[-1]) for each in points.values()), default=-1)
    return [
        {
            "run_id": task.run,
            "key_id": key,
            "attempt": task.attempt,
            "number": first // blocks.BLOCK,
            "last_step": newest,
            "points": len(each.steps),
            "outline": _outline(each),
            "data": _data(each, newest),
        }
        for key, each in points.items()
    ]


def _data(points: Stored, last: int) -> bytes:
    is_dense = last - points.steps[0] + 1 == len(points.steps)
    return points.values.astype(VALUE).tobytes() if is_dense else _with_steps(points)


def _outline(points: Stored) -> bytes:
    """The peaks, where they are few and nothing is strange."""
    if not np.isfinite(points.values).all():
        return b""
    kept = points.at(peaks(points.steps, OUTLINE_SHIFT, points.values))
    return _with_steps(kept) if 3 * len(kept.steps) <= len(points.steps) else b""


def _with_steps(points: Stored) -> bytes:
    return points.values.astype(VALUE).tobytes() + points.steps.astype(STEP).tobytes()


def _store(sessions: Sessions, task: Task, rows: Sequence[dict[str, Any]], packed: int, reached: int) -> bool:
    """Store blocks and how far they reach; False where the run is being deleted or another one packs it."""
    with sessions.begin() as session:
        here = select(Run.id).where(Run.id == task.run, Run.deleting_at.is_(None))
        if session.scalar(here.with_for_update(key_share=True)) is None:
            return False
        mine = and_(Attempt.run_id == task.run, Attempt.number == task.attempt, Attempt.packed_step == packed)
        step = update(Attempt).where(mine).values(packed_step=reached).returning(Attempt.number)
        if session.scalar(step) is None:
            return False
        if rows:
            session.execute(insert(MetricBlock), rows)
    return True
