"""Points in sealed blocks: the only copy of what an attempt has most likely done with.

An attempt's newest points are rows of `metric`. All but its last steps while it trains, everything once it
has ended, is sealed by the reconciler (`packing`): BLOCK steps of a metric at a time become one block, and
their rows go in the same transaction. `Attempt.packed_step` says how far; whoever writes a point up to there
changes its block. So a point is in a row or in a block, never in both. A block has an outline next to its
points: for a curve that is thinned to its peaks anyway, a tenth of the bytes. `block_codec` describes them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, and_, bindparam, case, or_, select
from sqlalchemy.orm import Session

from backend.metrics.block_codec import MAX_POINTS, BlockDamaged, decode_all, read_content
from backend.metrics.block_damage import BlockPlace, record_damage
from backend.storage.models import ALL_PACKED, BEFORE_ALL_STEPS, Attempt, Metric, MetricBlock
from backend.storage.numbers import from_stored

BLOCK = 1_024
"""Steps of a block, a multiple of an outline's bucket."""

_TAIL = (
    select(Metric.step, Metric.attempt, Metric.kind, Metric.value)
    .where(
        Metric.run_id == bindparam("run"),
        Metric.key_id == bindparam("key"),
        Metric.step > bindparam("after"),
        Metric.attempt >= bindparam("attempt"),
    )
    .order_by(Metric.step, Metric.attempt)
)


@dataclass(frozen=True, slots=True)
class Stored:
    """Points of one metric of one run, of any attempts, also such as are hidden."""

    steps: NDArray[np.int64]
    attempts: NDArray[np.int64]
    values: NDArray[np.float64]
    weights: NDArray[np.int64] | None = None
    """Number of points that each point represents, if some were left out."""

    def __add__(self, second: "Stored") -> "Stored":
        if not len(second.steps):
            return self
        has_all = self.weights is None and second.weights is None
        return Stored(
            np.concatenate([self.steps, second.steps]),
            np.concatenate([self.attempts, second.attempts]),
            np.concatenate([self.values, second.values]),
            None if has_all else np.concatenate([_weights(self), _weights(second)]),
        )

    def of_run(self, number: int) -> "Stored":
        """Return the same points as those of the given generation of a fork: newer than those of every run
        before it.
        """
        return replace(self, attempts=self.attempts + (number << 32)) if number else self

    def at(self, indices: NDArray[np.bool_] | NDArray[np.intp] | slice) -> "Stored":
        """Return the points at these places."""
        weights = None if self.weights is None else self.weights[indices]
        return Stored(self.steps[indices], self.attempts[indices], self.values[indices], weights)


def _weights(stored: Stored) -> NDArray[np.int64]:
    return np.ones(len(stored.steps), np.int64) if stored.weights is None else stored.weights


NOTHING = Stored(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


Reached = Mapping[int, int]
"""The last sealed step of each attempt of a run: no point of it up to there is a row."""


@dataclass(frozen=True, slots=True)
class Packed:
    """The blocks of one metric of one run, in one."""

    points: Stored = NOTHING
    reached: Reached = field(default_factory=dict)

    def add_tail(self, rows: Stored) -> Stored:
        """Return all points; of the rows, which were read before the blocks, those that are not sealed by
        now.
        """
        if not len(rows.steps):
            return self.points
        is_row = np.ones(len(rows.steps), dtype=bool)
        for attempt, step in self.reached.items():
            is_row &= (rows.attempts != attempt) | (rows.steps > step)
        return self.points + (rows if is_row.all() else rows.at(is_row))


@dataclass(frozen=True, slots=True)
class Outlined:
    """The blocks for which the outline suffices."""

    runs: Collection[str]
    """Runs of which all points qualify; of other runs, only points outside the window."""
    first: int
    last: int
    """The window's first and last step."""
    cuts: Collection[int] = ()
    """Steps behind which points of some attempt do not count."""

    def column(self) -> ColumnElement[bytes]:
        """Return the column to read of a block: the outline, or all points if only some of them count."""
        cut = {step // BLOCK for step in (self.first - 1, self.last, *self.cuts) if (step + 1) % BLOCK}
        is_outside = ~MetricBlock.number.between(self.first // BLOCK, self.last // BLOCK)
        will_do = and_(
            MetricBlock.outline != b"",
            MetricBlock.number.not_in(cut),
            or_(is_outside, MetricBlock.run_id.in_(self.runs)),
        )
        return case((will_do, MetricBlock.outline), else_=MetricBlock.data)


def read_tail(session: Session, run: str, key: int, reached: Reached) -> Stored:
    """Return the points that are rows; to be read before the blocks, lest what is sealed in between be
    missed.
    """
    open_ones = {attempt: step for attempt, step in reached.items() if step < ALL_PACKED}
    if reached and not open_ones:
        return NOTHING
    bounds = {
        "attempt": min(open_ones, default=0),
        "after": min(open_ones.values(), default=BEFORE_ALL_STEPS),
    }
    return rows_to_points(session.execute(_TAIL, {"run": run, "key": key, **bounds}).all())


def read_blocks(
    session: Session,
    runs: Collection[str],
    keys: Collection[int],
    outlined: Outlined | None = None,
    *,
    numbers: tuple[int, int] | None = None,
) -> dict[tuple[str, int], Packed]:
    """Return the sealed points of each (run, key of a metric), of all blocks or of those from one to another
    number.

    One statement: how far an attempt is sealed is never of another moment than its blocks.
    """
    join_condition = and_(
        MetricBlock.run_id == Attempt.run_id,
        MetricBlock.attempt == Attempt.number,
        MetricBlock.key_id.in_(keys),
        *([] if numbers is None else [MetricBlock.number.between(*numbers)]),
    )
    query = (
        select(
            Attempt.run_id,
            MetricBlock.key_id,
            Attempt.number,
            MetricBlock.number,
            Attempt.packed_step,
            MetricBlock.last_step,
            MetricBlock.points,
            MetricBlock.data if outlined is None else outlined.column(),
        )
        .join_from(Attempt, MetricBlock, join_condition, isouter=True)
        .where(Attempt.run_id.in_(runs))
    )
    reached: dict[str, dict[int, int]] = {run: {} for run in runs}
    blocks_by_curve: dict[tuple[str, int], list[Any]] = {(run, key): [] for run in runs for key in keys}
    # Not by the session: hundreds of rows take half the time without the ORM.
    for row in session.connection().execute(query, execution_options={"binary": True}).all():
        reached[row[0]][row[2]] = row[4]
        if row[1] is not None:
            blocks_by_curve[row[0], row[1]].append(row)
    points = _join_points(session, blocks_by_curve)
    return {
        key_of_curve: Packed(points.get(key_of_curve, NOTHING), reached[key_of_curve[0]])
        for key_of_curve in blocks_by_curve
    }


def _join_points(
    session: Session, blocks_by_curve: Mapping[tuple[str, int], list[Any]]
) -> dict[tuple[str, int], Stored]:
    """Return the points of all blocks that are not damaged; of those that are, a note is left."""
    stored = [row for blocks in blocks_by_curve.values() for row in _sort_blocks(blocks)]
    rows: list[Any] = []
    point_count = sum(max(0, min(row[6], MAX_POINTS)) for row in stored)
    columns = decode_all(
        _contents(session, stored, rows), point_count
    )  # many short curves are as quick as a long one
    ends = np.cumsum(columns.counts).tolist()
    weights = _point_weights(columns.counts, [row[6] for row in rows])
    points, begin = {}, 0
    while begin < len(rows):
        key_of_curve, end = rows[begin][:2], begin + 1
        while end < len(rows) and rows[end][:2] == key_of_curve:
            end += 1
        span = slice(ends[begin - 1] if begin else 0, ends[end - 1])
        points[key_of_curve] = Stored(
            columns.steps[span],
            _repeat_attempts([row[2] for row in rows[begin:end]], columns.counts[begin:end]),
            columns.values[span],
            None if weights is None else weights[span],
        )
        begin = end
    return points


def _sort_blocks(blocks: list[Any]) -> list[Any]:
    return sorted(blocks, key=lambda row: (row[2], row[3]))  # a database would sort their bytes, too


def _contents(session: Session, stored: Sequence[Any], rows: list[Any]) -> Iterator[bytes]:
    """Yield the content of each block that is not damaged, whose row is added to `rows`."""
    reader = zstandard.ZstdDecompressor()
    for row in stored:
        try:
            decompressed = _read_row_content(row, row[7], reader)
        except BlockDamaged as error:
            run, key, attempt, number, _, last, *_ = row
            points_of_it = _full_content(session, row, reader)
            record_damage(
                BlockPlace(run, key, attempt, number, number * BLOCK, last, points_of_it is not None),
                str(error),
            )
            if points_of_it is None:
                continue
            decompressed = points_of_it
        rows.append(row)
        yield decompressed


def _read_row_content(row: Any, data: bytes, reader: zstandard.ZstdDecompressor) -> bytes:
    """Return a row's block or outline. Raises BlockDamaged if the content is damaged or another row's."""
    return read_content(data, reader, points=row[6], within=(row[3] * BLOCK, row[5]))


def _full_content(session: Session, row: Any, reader: zstandard.ZstdDecompressor) -> bytes | None:
    """Return all points of a block whose outline is damaged; None if it is the block itself."""
    run, key, attempt, number, *_ = row
    conditions = (MetricBlock.run_id == run, MetricBlock.key_id == key, MetricBlock.attempt == attempt)
    query = select(MetricBlock.data).where(*conditions, MetricBlock.number == number)
    data = session.execute(query, execution_options={"binary": True}).scalar()
    try:
        return None if data is None or data == row[7] else _read_row_content(row, data, reader)
    except BlockDamaged:
        return None


def _repeat_attempts(attempts: Sequence[int], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    if attempts[0] == attempts[-1]:  # they are in order
        return np.full(int(counts.sum()), attempts[0])
    return np.repeat(attempts, counts)


def _point_weights(counts_read: NDArray[np.int64], counts: Sequence[int]) -> NDArray[np.int64] | None:
    """Return the number of points that each point represents, if some of the blocks are outlines."""
    left_out = np.array(counts, np.int64) - counts_read
    if not left_out.any():
        return None
    weights = np.ones(int(counts_read.sum()), np.int64)
    weights[np.cumsum(counts_read) - 1] += left_out
    return weights


def rows_to_points(rows: Sequence[Any]) -> Stored:
    if not rows:
        return NOTHING
    steps, attempts, kinds, values = (np.array(column) for column in zip(*rows, strict=True))
    values = values.astype(np.float64)  # NULL becomes NaN
    return Stored(steps, attempts, from_stored(kinds, values) if kinds.any() else values)
