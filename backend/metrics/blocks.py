"""Points once more, packed for reading: a database hands over a million rows in seconds, a thousand blocks in
milliseconds.

The rows of `metric` stay the truth. What an attempt has most likely done with (all but its last steps while
it trains, everything once it has ended) is packed by the reconciler, BLOCK steps of a metric at a time,
however many of these have a row. `Attempt.packed_step` says how far: readers take the blocks up to there and
the rows behind it; whoever writes a row up to there takes the blocks back (`packing.unpack`). A block has an
outline beside its points: for a curve that is thinned to its peaks anyway, a tenth of the bytes. To have all
blocks made again, in one transaction: `UPDATE attempt SET packed_step = -1; DELETE FROM metric_block`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, and_, bindparam, case, or_, select
from sqlalchemy.orm import Session

from backend.db.models import ALL_PACKED, Attempt, Metric, MetricBlock
from backend.db.numbers import from_stored

BLOCK = 1_024
"""Steps of a block, a multiple of an outline's bucket."""

STEP, VALUE = np.dtype("<i4"), np.dtype("<f8")
"""In a block. NaN, the infinities and -0.0 need no kind here."""

_BEFORE_ALL = -(2**31)

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

    def of_run(self, number: int) -> "Stored":
        """The same points as those of the given generation of a fork: newer than those of every run before
        it.
        """
        return replace(self, attempts=self.attempts + (number << 32)) if number else self

    def at(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> "Stored":
        """Only those points."""
        weights = None if self.weights is None else self.weights[which]
        return Stored(self.steps[which], self.attempts[which], self.values[which], weights)


def _weights(stored: Stored) -> NDArray[np.int64]:
    return np.ones(len(stored.steps), np.int64) if stored.weights is None else stored.weights


NOTHING = Stored(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True, slots=True)
class Packed:
    """The blocks of one metric of one run, in one."""

    points: Stored = NOTHING
    reached: Mapping[int, int] = field(default_factory=dict)
    """How far each attempt of the run is packed: no point of it up to there is missing."""

    @property
    def is_all(self) -> bool:
        """Whether the run has no point outside of its blocks."""
        return bool(self.reached) and min(self.reached.values()) >= ALL_PACKED


@dataclass(frozen=True, slots=True)
class Outlined:
    """The blocks for which the outline suffices."""

    runs: Collection[str]
    """Of which all will do; of others those that lie outside of the window."""
    first: int
    last: int
    """The window's first and last step."""
    cuts: Collection[int] = ()
    """Steps behind which points of some attempt do not count."""

    def column(self) -> ColumnElement[bytes]:
        """The column to read of a block: the outline, or all points where only some of them count."""
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
    """The packed points of each (run, key of a metric).

    One statement: how far an attempt is packed is never of another moment than its blocks.
    """
    own = and_(
        MetricBlock.run_id == Attempt.run_id,
        MetricBlock.attempt == Attempt.number,
        MetricBlock.key_id.in_(keys),
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
        .join_from(Attempt, MetricBlock, own, isouter=True)
        .where(Attempt.run_id.in_(runs))
    )
    reached: dict[str, dict[int, int]] = {run: {} for run in runs}
    found: dict[tuple[str, int], list[Any]] = {(run, key): [] for run in runs for key in keys}
    for row in session.execute(query, execution_options={"binary": True}):
        reached[row[0]][row[2]] = row[4]
        if row[1] is not None:
            found[row[0], row[1]].append(row)
    return {place: Packed(_joined(blocks), reached[place[0]]) for place, blocks in found.items()}


def _joined(blocks: list[Any]) -> Stored:
    if not blocks:
        return NOTHING
    blocks.sort(key=lambda row: (row[2], row[3]))  # a database would sort their bytes, too
    _, _, attempts, _, _, ends, counts, data = zip(*blocks, strict=True)
    if attempts[0] == attempts[-1] and _is_gapless(ends, counts, data):
        first, last = ends[0] - counts[0] + 1, ends[-1]
        steps, values = np.arange(first, last + 1), np.frombuffer(b"".join(data), VALUE)
        return Stored(steps, np.broadcast_to(attempts[0], len(steps)), values)
    pieces, numbers = zip(*(decoded(*block[5:]) for block in blocks), strict=True)
    steps, there = np.concatenate(pieces, dtype=np.int64), [len(piece) for piece in pieces]
    weights = None
    if sum(there) < sum(counts):
        weights = np.ones(len(steps), np.int64)
        weights[np.cumsum(there) - 1] += np.subtract(counts, there)
    return Stored(steps, np.repeat(attempts, there), np.concatenate(numbers), weights)


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


def read_tail(session: Session, run: str, key: int, packed: Packed, *, last: int) -> Stored:
    """The points up to `last` that are not in blocks."""
    if packed.is_all:
        return NOTHING
    open_ones = {attempt: step for attempt, step in packed.reached.items() if step < ALL_PACKED}
    place = {"attempt": min(open_ones, default=0), "after": min(open_ones.values(), default=_BEFORE_ALL)}
    rows = points_of(session.execute(_TAIL, {"run": run, "key": key, "last": last, **place}).all())
    is_new = np.ones(len(rows.steps), dtype=bool)
    for attempt, step in packed.reached.items():
        is_new &= (rows.attempts != attempt) | (rows.steps > step)
    return rows if is_new.all() else rows.at(is_new)


def points_of(rows: Sequence[Any]) -> Stored:
    if not rows:
        return NOTHING
    steps, attempts, kinds, values = (np.array(column) for column in zip(*rows, strict=True))
    values = values.astype(np.float64)  # NULL becomes NaN
    return Stored(steps, attempts, from_stored(kinds, values) if kinds.any() else values)
