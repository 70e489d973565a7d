"""Read metric points from sealed blocks and from rows that are not sealed yet.

The newest points of an attempt are rows of the table `metric`. The reconciler seals all but the last steps
while the attempt trains, and the rest when it has ended: BLOCK_STEPS steps of a metric become one block, and
their rows are deleted in the same transaction. `Attempt.packed_step` is the last sealed step. A late point up
to this step is written into its block, so that a point is either in a row or in a block, never in both. Each
block also has an outline, a tenth of the size, which is sufficient for a curve that is thinned to its peaks.
`block_codec` describes the format.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, and_, bindparam, case, or_, select
from sqlalchemy.orm import Session

from backend.metrics.block_codec import MAX_BLOCK_POINTS, BlockDamaged, decode_all, read_content
from backend.metrics.block_damage import BlockPlace, record_damage
from backend.storage.models import ALL_PACKED, BEFORE_ALL_STEPS, Attempt, Metric, MetricBlock
from backend.storage.numbers import from_stored

BLOCK_STEPS = 1_024
"""Number of steps of a block, a multiple of an outline's bucket."""

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
    """Points of one metric of a run from any attempts, including hidden ones."""

    steps: NDArray[np.int64]
    attempts: NDArray[np.int64]
    values: NDArray[np.float64]
    weights: NDArray[np.int64] | None = None
    """Number of original points that each point represents, or None if none were left out."""

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

    def shift_attempts(self, number: int) -> "Stored":
        """Return the points with attempts that sort after those of all
        runs with a lower number in a lineage.
        """
        return replace(self, attempts=self.attempts + (number << 32)) if number else self

    def select(self, indices: NDArray[np.bool_] | NDArray[np.intp] | slice) -> "Stored":
        """Return the points at these indices."""
        weights = None if self.weights is None else self.weights[indices]
        return Stored(self.steps[indices], self.attempts[indices], self.values[indices], weights)


def _weights(stored: Stored) -> NDArray[np.int64]:
    return np.ones(len(stored.steps), np.int64) if stored.weights is None else stored.weights


NO_POINTS = Stored(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


SealedSteps = Mapping[int, int]
"""The last sealed step of each attempt of a run. Up to this step, no point of the attempt is a row."""


@dataclass(frozen=True, slots=True)
class Packed:
    """The joined points of all blocks of one metric of a run."""

    points: Stored = NO_POINTS
    sealed_steps: SealedSteps = field(default_factory=dict)

    def add_tail(self, rows: Stored) -> Stored:
        """Return the points of the blocks and of the rows that were not sealed when the blocks were read.

        The rows must have been read before the blocks.
        """
        if not len(rows.steps):
            return self.points
        is_row = np.ones(len(rows.steps), dtype=bool)
        for attempt, step in self.sealed_steps.items():
            is_row &= (rows.attempts != attempt) | (rows.steps > step)
        return self.points + (rows if is_row.all() else rows.select(is_row))


@dataclass(frozen=True, slots=True)
class Outlined:
    """The blocks of which reading the outline is sufficient."""

    runs: Collection[str]
    """Runs of which outlines are sufficient everywhere. For other runs,
    they are so only outside the window.
    """
    first: int
    last: int
    """Last step of the window, which begins at `first`."""
    cut_steps: Collection[int] = ()
    """Steps after which points of some attempt or run are not valid."""

    def column(self) -> ColumnElement[bytes]:
        """Return the SQL expression for the bytes to read: the outline if
        it is sufficient, or else all points.
        """
        cut_numbers = {
            step // BLOCK_STEPS
            for step in (self.first - 1, self.last, *self.cut_steps)
            if (step + 1) % BLOCK_STEPS
        }
        is_outside = ~MetricBlock.number.between(self.first // BLOCK_STEPS, self.last // BLOCK_STEPS)
        is_sufficient = and_(
            MetricBlock.outline != b"",
            MetricBlock.number.not_in(cut_numbers),
            or_(is_outside, MetricBlock.run_id.in_(self.runs)),
        )
        return case((is_sufficient, MetricBlock.outline), else_=MetricBlock.data)


def read_tail(session: Session, run: str, key: int, sealed_steps: SealedSteps) -> Stored:
    """Return the points that are rows.

    Call this before reading the blocks, so that points that are sealed in between are not missed.
    """
    unsealed_attempts = {attempt: step for attempt, step in sealed_steps.items() if step < ALL_PACKED}
    if sealed_steps and not unsealed_attempts:
        return NO_POINTS
    bounds = {
        "attempt": min(unsealed_attempts, default=0),
        "after": min(unsealed_attempts.values(), default=BEFORE_ALL_STEPS),
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
    """Return the sealed points of each (run, metric key), of all blocks or of a range of block `numbers`.

    A single statement reads the blocks and the last sealed steps, so that they are consistent.
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
    sealed_steps: dict[str, dict[int, int]] = {run: {} for run in runs}
    blocks_by_curve: dict[tuple[str, int], list[Any]] = {(run, key): [] for run in runs for key in keys}
    # The connection is used because hundreds of rows take half the time without the ORM.
    for row in session.connection().execute(query, execution_options={"binary": True}).all():
        sealed_steps[row[0]][row[2]] = row[4]
        if row[1] is not None:
            blocks_by_curve[row[0], row[1]].append(row)
    points = _join_points(session, blocks_by_curve)
    return {
        key_of_curve: Packed(points.get(key_of_curve, NO_POINTS), sealed_steps[key_of_curve[0]])
        for key_of_curve in blocks_by_curve
    }


def _join_points(
    session: Session, blocks_by_curve: Mapping[tuple[str, int], list[Any]]
) -> dict[tuple[str, int], Stored]:
    """Return the points of all blocks. Damaged blocks are recorded and omitted."""
    stored_rows = [row for blocks in blocks_by_curve.values() for row in _sort_blocks(blocks)]
    rows: list[Any] = []
    point_count = sum(max(0, min(row[6], MAX_BLOCK_POINTS)) for row in stored_rows)
    columns = decode_all(
        _contents(session, stored_rows, rows), point_count
    )  # decoded together, so that many short curves are fast
    end_indices = np.cumsum(columns.counts).tolist()
    weights = _point_weights(columns.counts, [row[6] for row in rows])
    points, start = {}, 0
    while start < len(rows):
        key_of_curve, end = rows[start][:2], start + 1
        while end < len(rows) and rows[end][:2] == key_of_curve:
            end += 1
        positions = slice(end_indices[start - 1] if start else 0, end_indices[end - 1])
        points[key_of_curve] = Stored(
            columns.steps[positions],
            _repeat_attempts([row[2] for row in rows[start:end]], columns.counts[start:end]),
            columns.values[positions],
            None if weights is None else weights[positions],
        )
        start = end
    return points


def _sort_blocks(blocks: list[Any]) -> list[Any]:
    # a database would also sort the bytes
    return sorted(blocks, key=lambda row: (row[2], row[3]))


def _contents(session: Session, stored: Sequence[Any], rows: list[Any]) -> Iterator[bytes]:
    """Yield the content of each block that is not damaged, and append its row to `rows`."""
    reader = zstandard.ZstdDecompressor()
    for row in stored:
        try:
            content = _read_row_content(row, row[7], reader)
        except BlockDamaged as error:
            run, key, attempt, number, _, last_step, *_ = row
            full_content = _full_content(session, row, reader)
            record_damage(
                BlockPlace(
                    run, key, attempt, number, number * BLOCK_STEPS, last_step, full_content is not None
                ),
                str(error),
            )
            if full_content is None:
                continue
            content = full_content
        rows.append(row)
        yield content


def _read_row_content(row: Any, data: bytes, reader: zstandard.ZstdDecompressor) -> bytes:
    """Return the content of a block or outline. Raises BlockDamaged if it
    is damaged or belongs to another row.
    """
    return read_content(data, reader, points=row[6], allowed_steps=(row[3] * BLOCK_STEPS, row[5]))


def _full_content(session: Session, row: Any, reader: zstandard.ZstdDecompressor) -> bytes | None:
    """Return the content of a block whose outline is damaged, or None if the block itself is damaged."""
    run, key, attempt, number, *_ = row
    conditions = (MetricBlock.run_id == run, MetricBlock.key_id == key, MetricBlock.attempt == attempt)
    query = select(MetricBlock.data).where(*conditions, MetricBlock.number == number)
    data = session.execute(query, execution_options={"binary": True}).scalar()
    try:
        return None if data is None or data == row[7] else _read_row_content(row, data, reader)
    except BlockDamaged:
        return None


def _repeat_attempts(attempts: Sequence[int], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    if attempts[0] == attempts[-1]:  # attempts are sorted
        return np.full(int(counts.sum()), attempts[0])
    return np.repeat(attempts, counts)


def _point_weights(counts_read: NDArray[np.int64], counts: Sequence[int]) -> NDArray[np.int64] | None:
    """Return the number of points that each point represents, or None if no block is an outline."""
    left_out = np.array(counts, np.int64) - counts_read
    if not left_out.any():
        return None
    weights = np.ones(int(counts_read.sum()), np.int64)
    weights[np.cumsum(counts_read) - 1] += left_out
    return weights


def rows_to_points(rows: Sequence[Any]) -> Stored:
    if not rows:
        return NO_POINTS
    steps, attempts, kinds, values = (np.array(column) for column in zip(*rows, strict=True))
    values = values.astype(np.float64)  # NULL becomes NaN
    return Stored(steps, attempts, from_stored(kinds, values) if kinds.any() else values)
