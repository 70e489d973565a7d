"""Points once more, packed for reading: a database hands over a million rows in seconds, a thousand blocks in
milliseconds.

The rows of `metric` stay the truth. What an attempt cannot change any more (all but its last steps while it
trains, everything once it has ended) is packed by the reconciler, BLOCK steps of a metric at a time. Of each
metric, blocks are made in the order of attempts and of steps, which follow one another without a gap; so
whoever reads takes the blocks that are there and the rows behind the last of them. A block has an outline
beside its points: for a curve that is thinned to its peaks anyway, a tenth of the bytes. To have all blocks
made again, in one transaction: `UPDATE attempt SET packed_step = -1; DELETE FROM metric_block`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, and_, bindparam, case, func, or_, select
from sqlalchemy.orm import Session

from backend.metrics.values import from_stored
from backend.models import ALL_PACKED, Attempt, Metric, MetricBlock

BLOCK = 1_024
"""Steps of a block, a multiple of an outline's bucket."""

STEP, VALUE = np.dtype("<i4"), np.dtype("<f8")
"""In a block. NaN, the infinities and -0.0 need no kind here."""

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


@dataclass(frozen=True, slots=True)
class Stored:
    """Points of one metric of one run, of any attempts, also such as are hidden."""

    steps: NDArray[np.int64]
    attempts: NDArray[np.int64]
    values: NDArray[np.float64]
    weights: NDArray[np.int64] | None = None
    """For how many points each stands, where some were left out."""

    def __add__(self, other: "Stored") -> "Stored":
        if not len(other.steps):
            return self
        has_all = self.weights is None and other.weights is None
        return Stored(
            np.concatenate([self.steps, other.steps]),
            np.concatenate([self.attempts, other.attempts]),
            np.concatenate([self.values, other.values]),
            None if has_all else np.concatenate([_weights(self), _weights(other)]),
        )

    def at(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> "Stored":
        """Only those points."""
        weights = None if self.weights is None else self.weights[which]
        return Stored(self.steps[which], self.attempts[which], self.values[which], weights)


def _weights(stored: Stored) -> NDArray[np.int64]:
    return np.ones(len(stored.steps), np.int64) if stored.weights is None else stored.weights


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


@dataclass(frozen=True, slots=True)
class Outlined:
    """Of which blocks the outline will do."""

    runs: Collection[str]
    """Of which all will do; of others those that lie outside of the window."""
    first: int
    last: int
    """The window's first and last step."""
    cuts: Collection[int] = ()
    """Steps behind which points of some attempt do not count."""

    def column(self) -> ColumnElement[bytes]:
        """What to read of a block: all points of one of which only a part counts."""
        cut = {step // BLOCK for step in (self.first - 1, self.last, *self.cuts) if (step + 1) % BLOCK}
        is_outside = ~MetricBlock.number.between(self.first // BLOCK, self.last // BLOCK)
        will_do = and_(
            MetricBlock.outline != b"",
            MetricBlock.number.not_in(cut),
            or_(is_outside, MetricBlock.run_id.in_(self.runs)),
        )
        return case((will_do, MetricBlock.outline), else_=MetricBlock.data)


def read_blocks(
    session: Session, runs: Collection[str], keys: Collection[int], outlined: Outlined | None = None
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
            MetricBlock.data if outlined is None else outlined.column(),
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
        steps, there = np.concatenate(pieces, dtype=np.int64), [len(piece) for piece in pieces]
        weights = None
        if sum(there) < sum(counts):
            weights = np.ones(len(steps), np.int64)
            weights[np.cumsum(there) - 1] += np.subtract(counts, there)
        stored = Stored(steps, np.repeat(attempts, there), np.concatenate(numbers), weights)
    return Packed(stored, attempts[-1], ends[-1], is_all)


def _is_gapless(ends: Sequence[int], counts: Sequence[int], data: Sequence[bytes]) -> bool:
    """Whether no step is missing in the blocks of one attempt: the usual case, and a big one's quick way."""
    are_dense = all(len(each) == count * VALUE.itemsize for each, count in zip(data, counts, strict=True))
    return are_dense and sum(counts) == ends[-1] - ends[0] + counts[0]


def decoded(last: int, count: int, data: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    """Steps and values of a block of so many points, or of its outline; see MetricBlock."""
    if len(data) == count * VALUE.itemsize:
        return np.arange(last - count + 1, last + 1), np.frombuffer(data, VALUE)
    there = len(data) // (VALUE.itemsize + STEP.itemsize)
    return np.frombuffer(data, STEP, offset=there * VALUE.itemsize), np.frombuffer(data, VALUE, there)


def read_tail(session: Session, run: str, key: int, packed: Packed, *, after: int, last: int) -> Stored:
    """The points up to `last` that are not in blocks; none of them that counts has a step up to `after`."""
    if packed.is_all:
        return NOTHING.points
    place = {"run": run, "key": key, "attempt": packed.attempt, "after": after, "last": last}
    rows = points_of(session.execute(_TAIL, place).all())
    is_new = (rows.attempts > packed.attempt) | (rows.steps > packed.last_step)
    return rows if is_new.all() else rows.at(is_new)


def points_of(rows: Sequence[Any]) -> Stored:
    if not rows:
        return NOTHING.points
    steps, attempts, kinds, values = (np.array(column) for column in zip(*rows, strict=True))
    values = values.astype(np.float64)  # NULL becomes NaN
    return Stored(steps, attempts, from_stored(kinds, values) if kinds.any() else values)
