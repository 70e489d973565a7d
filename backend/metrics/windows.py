"""Read the points of a run in the order of steps, in windows of steps, from blocks and rows.

Memory does not grow with the length of the run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from backend.metrics import blocks
from backend.metrics.attempts import Limit, load_limits, valid_row_condition, valid_row_mask
from backend.metrics.blocks import NO_POINTS, Stored, read_blocks, rows_to_points
from backend.metrics.lineage import ALL_STEPS, LineageSegment
from backend.storage.models import Attempt, Metric, MetricBlock, MetricKey

WINDOW_POINTS = 20_000
"""Approximate number of points in a window, which are in memory at a time."""

MAX_STEP = 2**31 - 1


class StoredPoint(NamedTuple):
    """A value of a metric at a step of an attempt."""

    step: int
    attempt: int
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class RunPoints:
    """A selection of the points of a run: up to a step, and of attempts up to `attempt`.

    `last_step` is at most the newest step of the run when it was looked up. Otherwise points that are written
    while windows are read could be missing between two windows.
    """

    run: str
    last_step: int
    attempt: int
    limits: Sequence[Limit]
    keys: Mapping[int, str]

    @property
    def width(self) -> int:
        """Number of steps in a window."""
        return max(1, WINDOW_POINTS // max(1, len(self.keys)))

    def select_visible(self, points: Stored) -> Stored:
        """Return the points of the selection that are not hidden."""
        is_own = (points.steps <= self.last_step) & (points.attempts <= self.attempt)
        return points.select(is_own & valid_row_mask(points.attempts, points.steps, self.limits))


def load_run_points(
    session: Session, segments: Iterable[LineageSegment], *, all_attempts: bool = False
) -> list[RunPoints]:
    """Return the selection of the current points of each stretch, optionally with hidden points."""
    segments = list(segments)
    limits = {} if all_attempts else load_limits(session, [segment.run for segment in segments])
    return [_segment_points(session, segment, limits.get(segment.run, ())) for segment in segments]


def _segment_points(session: Session, segment: LineageSegment, limits: Sequence[Limit]) -> RunPoints:
    newest = select(func.coalesce(func.max(Attempt.number), MAX_STEP)).where(Attempt.run_id == segment.run)
    attempt = session.scalars(newest).one()
    draft = RunPoints(segment.run, segment.last_step, attempt, limits, {})
    is_point = and_(Metric.run_id == draft.run, Metric.step <= draft.last_step, Metric.attempt <= attempt)
    # One index search per name, because DISTINCT would read every row.
    has_row = (
        select(Metric.step)
        .where(is_point, valid_row_condition(Metric, limits), Metric.key_id == MetricKey.id)
        .exists()
    )
    is_block = and_(MetricBlock.run_id == draft.run, MetricBlock.attempt <= attempt)
    has_block = select(MetricBlock.number).where(is_block, MetricBlock.key_id == MetricKey.id).exists()
    names = select(MetricKey.id, MetricKey.name, has_row).where(or_(has_row, has_block))
    keys = {
        key: name
        for key, name, is_row in session.execute(names).all()
        if is_row or _has_valid_sealed_point(session, draft, key)
    }
    return RunPoints(
        draft.run, min(draft.last_step, _newest_step(session, draft.run, keys)), attempt, limits, keys
    )


def _newest_step(session: Session, run: str, keys: Iterable[int]) -> int:
    """Return the last step at which any of these metrics has a point, or -1 if there are no points."""
    is_row = and_(Metric.run_id == run, Metric.key_id == MetricKey.id)
    row = select(Metric.step).where(is_row).order_by(Metric.step.desc()).limit(1).scalar_subquery()
    row_step = session.scalar(select(func.max(row)).select_from(MetricKey).where(MetricKey.id.in_(keys)))
    sealed_step = session.scalar(select(func.max(MetricBlock.last_step)).where(MetricBlock.run_id == run))
    return max((step for step in (row_step, sealed_step) if step is not None), default=-1)


def _has_valid_sealed_point(session: Session, run_points: RunPoints, key: int) -> bool:
    """Return whether a metric has a sealed point that is not hidden."""
    if not run_points.limits and run_points.last_step >= ALL_STEPS:
        return True
    return (
        len(
            run_points.select_visible(
                read_blocks(session, [run_points.run], [key])[run_points.run, key].points
            ).steps
        )
        > 0
    )


def find_next_window(session: Session, run_points: RunPoints, after_step: int) -> tuple[int, int] | None:
    """Return the first and last step of the next window after a step, or None after the last point.

    Gaps without points are skipped.
    """
    if not run_points.keys:
        return None
    is_later_row = and_(
        Metric.run_id == run_points.run, Metric.key_id == MetricKey.id, Metric.step > after_step
    )
    row = select(Metric.step).where(is_later_row).order_by(Metric.step).limit(1).scalar_subquery()
    is_later_block = and_(
        MetricBlock.run_id == run_points.run,
        MetricBlock.key_id == MetricKey.id,
        MetricBlock.attempt == Attempt.number,
        MetricBlock.number >= (after_step + 1) // blocks.BLOCK_STEPS,
    )
    block = select(func.min(MetricBlock.number)).where(is_later_block).scalar_subquery()
    is_key = MetricKey.id.in_(run_points.keys)
    row_step = session.scalar(select(func.min(row)).select_from(MetricKey).where(is_key))
    block_number = session.scalar(
        select(func.min(block))
        .select_from(MetricKey)
        .join(Attempt, Attempt.run_id == run_points.run)
        .where(is_key)
    )
    first_steps = [] if row_step is None else [row_step]
    first_steps += [] if block_number is None else [max(block_number * blocks.BLOCK_STEPS, after_step + 1)]
    first_step = min(first_steps, default=MAX_STEP)
    last_step = min(first_step + run_points.width - 1, run_points.last_step)
    return (first_step, last_step) if first_steps and first_step <= run_points.last_step else None


def read_window(session: Session, run_points: RunPoints, first: int, last: int) -> list[StoredPoint]:
    """Return the valid points in a range of steps, ordered by step, attempt and name."""
    tails = _rows(session, run_points, first, last)
    numbers = (first // blocks.BLOCK_STEPS, last // blocks.BLOCK_STEPS)
    sealed_points = read_blocks(session, [run_points.run], run_points.keys, numbers=numbers)
    points_by_name: list[tuple[Stored, str]] = []
    for key, name in run_points.keys.items():
        points = sealed_points[run_points.run, key].add_tail(tails.get(key, NO_POINTS))
        inside = points.select((points.steps >= first) & (points.steps <= last))
        points_by_name.append((run_points.select_visible(inside), name))
    return _merge_points(points_by_name)


def _rows(session: Session, run_points: RunPoints, first: int, last: int) -> dict[int, Stored]:
    """Return the rows of a range of steps by metric key. They must be read
    before the blocks (see `blocks.read_tail`).
    """
    query = (
        select(Metric.key_id, Metric.step, Metric.attempt, Metric.kind, Metric.value)
        .where(
            Metric.run_id == run_points.run,
            Metric.key_id.in_(run_points.keys),
            Metric.step.between(first, last),
        )
        .order_by(Metric.key_id, Metric.step, Metric.attempt)
    )
    rows: Sequence[Any] = session.execute(query).all()
    return {
        key: rows_to_points([row[1:] for row in rows_of_key])
        for key, rows_of_key in groupby(rows, lambda row: row[0])
    }


def _merge_points(curves: Sequence[tuple[Stored, str]]) -> list[StoredPoint]:
    by_name = sorted(curves, key=lambda curve: curve[1])
    if not by_name:
        return []
    steps, attempts, values = (
        np.concatenate([getattr(points, column) for points, _ in by_name])
        for column in ("steps", "attempts", "values")
    )
    names = np.repeat(np.arange(len(by_name)), [len(points.steps) for points, _ in by_name])
    order = np.lexsort((names, attempts, steps))
    columns = (column[order].tolist() for column in (steps, attempts, names, values))
    return [
        StoredPoint(step, attempt, by_name[name][1], value)
        for step, attempt, name, value in zip(*columns, strict=True)
    ]


def iterate_points(session: Session, run_points: RunPoints) -> Iterator[StoredPoint]:
    """Yield all points of a selection in the transaction of the session."""
    last_step = -1
    while (window := find_next_window(session, run_points, last_step)) is not None:
        yield from read_window(session, run_points, *window)
        last_step = window[1]


def load_metric_names(session: Session, runs: Iterable[str]) -> list[str]:
    """Return the names of all metrics of these runs, including those with only hidden points."""
    runs = list(runs)
    has_row = select(Metric.step).where(Metric.run_id.in_(runs), Metric.key_id == MetricKey.id).exists()
    is_block = and_(MetricBlock.run_id.in_(runs), MetricBlock.key_id == MetricKey.id)
    has_block = select(MetricBlock.number).where(is_block).exists()
    return sorted(session.scalars(select(MetricKey.name).where(or_(has_row, has_block))))
