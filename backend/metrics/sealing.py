"""Seal points: convert rows to blocks, and delete the rows in the same transaction."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, cast

import numpy as np
from sqlalchemy import (
    CursorResult,
    Row,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from backend.metrics import blocks
from backend.metrics.block_codec import BlockDamaged, BlockNewer, decode_row, encode, encode_outline
from backend.metrics.block_damage import BlockPlace, record_damage
from backend.metrics.blocks import NO_POINTS, Stored, rows_to_points
from backend.metrics.thinning import OUTLINE_SHIFT, peak_indices
from backend.storage.engine import Sessions, insert_into
from backend.storage.models import (
    ALL_PACKED,
    BEFORE_ALL_STEPS,
    NOT_BEGUN,
    Attempt,
    Metric,
    MetricBlock,
    MetricKey,
    Run,
)

MAX_TASKS = 1_000
"""Maximum number of attempts that are sealed in one execution of the chore."""

MAX_BLOCKS_PER_INSERT = 500
"""Maximum number of blocks that one statement inserts."""

MAX_POINTS_PER_TRANSACTION = 400_000
"""Approximate maximum number of points in one transaction, during which other writers wait on SQLite.

If a run has more than 390 metrics, only a part of each block is sealed at a time, and the next transaction
adds to it.
"""

MAX_BLOCKS_PER_READ = 400
"""Maximum number of blocks that one statement reads. Each takes two of its parameters."""

BLOCK_KEY_COLUMNS = ("run_id", "key_id", "attempt", "number")

logger = logging.getLogger(__name__)

_PIECE = (
    select(Metric.step, Metric.attempt, Metric.kind, Metric.value)
    .where(
        Metric.run_id == bindparam("run"),
        Metric.key_id == bindparam("key"),
        Metric.step.between(bindparam("first"), bindparam("last")),
        Metric.attempt == bindparam("attempt"),
    )
    .order_by(Metric.step)
)
"""Rows of one metric. The rows of all metrics together would take a hundred megabytes."""

_KEYS = select(MetricKey.id).where(
    select(Metric.step)
    .where(
        Metric.run_id == bindparam("run"),
        Metric.key_id == MetricKey.id,
        Metric.step.between(bindparam("first"), bindparam("last")),
        Metric.attempt == bindparam("attempt"),
    )
    .order_by(Metric.step)
    .limit(1)  # one index search per name, because Postgres would convert EXISTS to a join over all rows
    .scalar_subquery()
    .is_not(None)
)
"""Keys of the metrics that have rows in the block. A statement has too few
parameters for all keys of a database.
"""

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
"""First step of any metric after a step."""


@dataclass(frozen=True, slots=True)
class Task:
    """An attempt with points that can be sealed."""

    run: str
    attempt: int
    packed: int
    """Last step that is already sealed."""
    first: int
    last: int
    """Last step for which no more points are expected, or ALL_PACKED if the attempt has ended."""


def find_sealable(session: Session) -> list[Task]:
    """Return up to MAX_TASKS attempts whose points can be sealed."""
    return [_make_task(attempt, run) for attempt, run in session.execute(_unsealed_attempts()).all()]


def _unsealed_attempts() -> Select[Attempt, Run]:
    """Return the query for attempts that may have points to seal."""
    complete_steps = (
        (Run.last_step + 1) // blocks.BLOCK_STEPS * blocks.BLOCK_STEPS
    )  # number of steps in complete blocks
    return (
        select(Attempt, Run)
        .join(Run, Run.id == Attempt.run_id)
        .where(
            Attempt.packed_step < ALL_PACKED,
            Run.deleting_at.is_(None),
            or_(
                Attempt.number < Run.attempt,
                Run.status != "running",
                # until an attempt begins, last_step is that of the attempt before it
                and_(Attempt.from_step != NOT_BEGUN, complete_steps > Attempt.packed_step + 1),
            ),
        )
        .order_by(Attempt.run_id, Attempt.number)
        .limit(MAX_TASKS)
    )


def _make_task(attempt: Attempt, run: Run) -> Task:
    has_ended = attempt.number < run.attempt or run.status != "running"
    last_step = (
        ALL_PACKED if has_ended else (run.last_step + 1) // blocks.BLOCK_STEPS * blocks.BLOCK_STEPS - 1
    )
    return Task(attempt.run_id, attempt.number, attempt.packed_step, attempt.packed_step + 1, last_step)


ReportDamage = Callable[[Session, BlockPlace, str], None]
"""A function that records a damaged block and the reason in the transaction of the session."""


def seal(
    sessions: Sessions, tasks: Sequence[Task], report_damage: ReportDamage | None = None
) -> Iterator[None]:
    """Seal the points of all tasks, and yield after each transaction. Concurrent processes do no harm.

    If a run cannot be sealed, it is skipped. If the database is unavailable, sealing ends. A damaged block to
    which points belong is reported with `report_damage` and replaced. Without `report_damage`, its run is
    skipped.
    """
    failed_attempts = set()
    for task in tasks:
        try:
            if task.run not in failed_attempts:
                yield from _seal_attempt(sessions, task, report_damage)
        except (SQLAlchemyError, BlockDamaged) as error:
            logger.warning("the points of run %s cannot be sealed: %s", task.run, str(error).splitlines()[0])
            if isinstance(error, OperationalError):
                return
            failed_attempts.add(task.run)


def _seal_attempt(sessions: Sessions, task: Task, report_damage: ReportDamage | None) -> Iterator[None]:
    first_step, packed_step = task.first, task.packed
    while first_step <= task.last:
        with sessions.begin() as session:
            if not _lock_task(session, task, packed_step):
                return
            packed_step = _seal_block(session, task, first_step, report_damage)
        yield
        first_step = packed_step + 1


def _lock_task(session: Session, task: Task, packed_step: int) -> bool:
    """Lock the run and the attempt, and return whether the attempt can be sealed.

    It cannot if the run is being deleted or another process has sealed the attempt. Writers of points also
    lock the attempt, so that its rows do not change until the transaction ends.
    """
    run_query = select(Run.id).where(Run.id == task.run, Run.deleting_at.is_(None))
    if session.scalar(run_query.with_for_update(key_share=True)) is None:
        return False
    is_unchanged = and_(_attempt_condition(task.run, task.attempt), Attempt.packed_step == packed_step)
    return (
        session.scalar(select(Attempt.number).where(is_unchanged).with_for_update(key_share=True)) is not None
    )


def _attempt_condition(run: str, attempt: int) -> Any:
    return and_(Attempt.run_id == run, Attempt.number == attempt)


def _seal_block(session: Session, task: Task, first: int, report_damage: ReportDamage | None) -> int:
    """Convert the rows of all metrics in one range of steps to blocks, and return the last sealed step.

    The range is extended over following steps without rows.
    """
    end_step = min(first // blocks.BLOCK_STEPS * blocks.BLOCK_STEPS + blocks.BLOCK_STEPS - 1, task.last)
    attempt_keys = {"run": task.run, "attempt": task.attempt}
    keys = session.scalars(_KEYS, {**attempt_keys, "first": first, "last": end_step}).all()
    end_step = min(end_step, first + max(1, MAX_POINTS_PER_TRANSACTION // max(1, len(keys))) - 1)
    bounds = {**attempt_keys, "first": first, "last": end_step}
    connection = session.connection()  # many rows take half the time without the ORM
    stored_by_key = {
        key: rows_to_points(connection.execute(_PIECE, {**bounds, "key": key}).all()) for key in keys
    }
    points = {key: stored for key, stored in stored_by_key.items() if len(stored.steps)}
    last_sealed = end_step
    if not any(stored.steps[-1] == end_step for stored in points.values()):
        next_step = session.scalar(_NEXT, {**attempt_keys, "after": end_step, "last": task.last})
        last_sealed = task.last if next_step is None else next_step - 1
    session.execute(
        update(Attempt).where(_attempt_condition(task.run, task.attempt)).values(packed_step=last_sealed)
    )
    put_into_blocks(session, task.run, task.attempt, points, report_damage)
    _remove_rows(
        session,
        task,
        list(points),
        first,
        end_step,
        count=sum(len(stored.steps) for stored in points.values()),
    )
    return last_sealed


def _remove_rows(
    session: Session, task: Task, keys: Sequence[int], first: int, last: int, *, count: int
) -> None:
    """Delete the rows that have been converted to blocks. Raises BlockDamaged if their number has changed."""
    if not keys:
        return
    rows = delete(Metric).where(
        Metric.run_id == task.run,
        Metric.key_id.in_(keys),
        Metric.step.between(first, last),
        Metric.attempt == task.attempt,
    )
    result = session.execute(rows, execution_options={"synchronize_session": False})
    removed_count = cast("CursorResult[Any]", result).rowcount
    if removed_count != count:
        raise BlockDamaged(f"{count} rows of step {first} to {last} were read, and {removed_count} are there")


def put_into_blocks(
    session: Session,
    run: str,
    attempt: int,
    points: Mapping[int, Stored],
    report_damage: ReportDamage | None = None,
) -> None:
    """Write points of an attempt into blocks, by metric key and in the order of steps. Existing steps are
    replaced.

    A damaged block to which points belong is reported with `report_damage` and replaced. Raises BlockDamaged
    without `report_damage`, or if a newer version wrote the block.
    """
    points_by_block = {
        (key, number): block_points
        for key, stored in points.items()
        for number, block_points in _split_by_block(stored)
    }
    old_points = _read_old_blocks(session, run, attempt, points_by_block, report_damage)
    rows = [
        {"run_id": run, "key_id": key, "attempt": attempt, "number": number, **_block_row(merged_points)}
        for (key, number), block_points in points_by_block.items()
        if (merged_points := _merge(old_points.get((key, number), NO_POINTS), block_points))
    ]
    if not rows:
        return
    query = insert_into(session, MetricBlock)
    changed_columns = {name: query.excluded[name] for name in ("last_step", "points", "outline", "data")}
    session.execute(query.on_conflict_do_update(index_elements=BLOCK_KEY_COLUMNS, set_=changed_columns), rows)


def seal_curves(session: Session, run: str, attempt: int, curves: Mapping[int, Stored]) -> None:
    """Store all points of an attempt without points as blocks, by metric key and in the order of steps."""
    session.execute(update(Attempt).where(_attempt_condition(run, attempt)).values(packed_step=ALL_PACKED))
    rows = (
        {"run_id": run, "key_id": key, "attempt": attempt, "number": number, **_block_row(block_points)}
        for key, points in sorted(curves.items())
        for number, block_points in _split_by_block(points)
    )
    while chunk := list(islice(rows, MAX_BLOCKS_PER_INSERT)):
        session.execute(insert(MetricBlock), chunk)


def _split_by_block(points: Stored) -> Iterator[tuple[int, Stored]]:
    numbers = points.steps // blocks.BLOCK_STEPS
    boundaries = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    for start, end in pairwise([0, *boundaries.tolist(), len(numbers)]):
        yield int(numbers[start]), points.select(slice(start, end))


def _read_old_blocks(
    session: Session,
    run: str,
    attempt: int,
    block_ids: Iterable[tuple[int, int]],
    report_damage: ReportDamage | None,
) -> dict[tuple[int, int], Stored]:
    """Return the points of the blocks with these (key, number). Damaged blocks are reported and omitted."""
    stored = {}
    for key, number, last_step, count, data in _read_data(session, run, attempt, block_ids):
        try:
            first_step = number * blocks.BLOCK_STEPS
            last_of_block = min(last_step, first_step + blocks.BLOCK_STEPS - 1)
            points = decode_row(data, points=count, first=first_step, last=last_of_block)
        except BlockDamaged as error:
            block = BlockPlace(run, key, attempt, number, number * blocks.BLOCK_STEPS, last_step)
            if report_damage is not None and not isinstance(error, BlockNewer):
                report_damage(session, block, str(error))
                continue
            record_damage(block, str(error))
            raise BlockDamaged(
                f"block {number} of metric {key} of run {run} cannot be read: {error}"
            ) from None
        stored[key, number] = Stored(points.steps, np.full(len(points.steps), attempt), points.values)
    return stored


def _read_data(
    session: Session, run: str, attempt: int, block_ids: Iterable[tuple[int, int]]
) -> Iterator[Row[int, int, int, int, bytes]]:
    """Yield the key, number, last step, number of points and bytes of each of these blocks."""
    table = MetricBlock
    columns = (table.key_id, table.number, table.last_step, table.points, table.data)
    conditions = (MetricBlock.run_id == run, MetricBlock.attempt == attempt)
    remaining_ids = iter(block_ids)
    while chunk := list(islice(remaining_ids, MAX_BLOCKS_PER_READ)):
        is_in_chunk = tuple_(MetricBlock.key_id, MetricBlock.number).in_(chunk)
        yield from session.execute(
            select(*columns).where(*conditions, is_in_chunk), execution_options={"binary": True}
        )


def _merge(old_points: Stored, new_points: Stored) -> Stored:
    if not len(old_points.steps):
        return new_points
    unchanged_points = old_points.select(~np.isin(old_points.steps, new_points.steps))
    merged_points = unchanged_points + new_points if len(unchanged_points.steps) else new_points
    return merged_points.select(np.argsort(merged_points.steps, kind="stable"))


def _block_row(points: Stored) -> dict[str, Any]:
    return {
        "last_step": int(points.steps[-1]),
        "points": len(points.steps),
        "outline": _encode_outline(points),
        "data": encode(points.steps, points.values),
    }


def _encode_outline(points: Stored) -> bytes:
    """Encode the peaks of the points, or return b"" if they are too many or a value is not finite."""
    if not np.isfinite(points.values).all():
        return b""
    peak_points = points.select(peak_indices(points.steps, OUTLINE_SHIFT, points.values))
    return (
        encode_outline(peak_points.steps, peak_points.values)
        if 3 * len(peak_points.steps) <= len(points.steps)
        else b""
    )


def reopen(session: Session, run: str, attempt: int, steps: Sequence[int]) -> int:
    """Return the step up to which new points of an attempt at these steps must be written into blocks.

    Call this in the transaction that writes them. It locks the attempt, so that uncommitted points cannot be
    sealed. If the attempt continues after its newest block, it is marked as unsealed there, and new points
    are rows.
    """
    is_attempt = _attempt_condition(run, attempt)
    packed_step = session.scalar(
        select(Attempt.packed_step).where(is_attempt).with_for_update(key_share=True)
    )
    if packed_step is None or packed_step < min(steps):
        return BEFORE_ALL_STEPS
    is_block = and_(MetricBlock.run_id == run, MetricBlock.attempt == attempt)
    number = select(func.max(MetricBlock.number)).where(is_block).scalar_subquery()
    newest = session.scalar(
        select(func.max(MetricBlock.last_step)).where(is_block, MetricBlock.number == number)
    )
    newest_step: int = -1 if newest is None else newest
    if any(newest_step < step <= packed_step for step in steps):
        session.execute(update(Attempt).where(is_attempt).values(packed_step=newest_step))
    return newest_step
