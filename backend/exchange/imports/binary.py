"""Read binary logs in parts in the sandbox, whose answers are validated before they are used."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from backend.base.sandbox.errors import Died, Refused, TimedOut
from backend.exchange.imports.leveldb_log import HEADER_BYTES
from backend.exchange.imports.log_file import LogFile, invalid_reply
from backend.exchange.imports.operations import MAX_PART_NAMES
from backend.exchange.imports.table import BadLog, Floats, Ints, Table, too_many_values

PART_BYTES = 1 << 18
MAX_RECORD_BYTES = 1 << 23
"""Maximum size of a part in bytes, into which every record must fit."""
COLUMN_TYPES = (np.int32, np.int64, np.float64, np.float64)


class Points(NamedTuple):
    """Values in the order of the log."""

    names: list[str]
    name: Ints
    """Index of the name of each value."""
    step: Ints
    value: Floats
    time: Floats


class SandboxReply(NamedTuple):
    """The contents of a part, and the number of its bytes that were read."""

    used: int
    points: Points
    facts: dict[str, Any]


def incomplete_record_note(remaining_bytes: int) -> str:
    """Return a sentence about the bytes at the end of a file that are no complete record."""
    return f"The file ends in the middle of a record: {remaining_bytes:,} bytes are left out."


class FileContents(NamedTuple):
    """The contents of a file of records."""

    points: Points
    facts: dict[str, Any]
    config: dict[str, Any]
    remaining_bytes: int
    """Number of bytes at the end that are no complete record."""

    def note(self) -> list[str]:
        """Return a sentence about an incomplete record at the end, if there is one."""
        if self.remaining_bytes <= HEADER_BYTES:
            return []
        return [incomplete_record_note(self.remaining_bytes)]


class BinaryReader:
    """Reads the parts of a file in the sandbox."""

    def __init__(self, operation: str, file: LogFile) -> None:
        self._operation = operation
        self._file = file.content
        self._sandbox = file.sandbox
        self._left = file.max_values

    def read(self, offset: int) -> SandboxReply | None:
        """Return the part at an offset of the file, or None if no complete record is left; raise BadLog."""
        size = PART_BYTES
        while True:
            self._file.seek(offset)
            data = self._file.read(size)
            answer = self._ask(data, offset)
            if answer.used:
                self._left -= len(answer.points.value)
                if self._left < 0:
                    raise too_many_values()
                return answer
            if len(data) < size:
                return None
            size *= 2
            if size > MAX_RECORD_BYTES:
                raise BadLog(f"has a record of more than {MAX_RECORD_BYTES:,} bytes at byte {offset:,}")

    def read_all(self, offset: int, end: int) -> FileContents:
        """Return the contents of all parts from `offset` to `end`, the size of the file."""
        chunks, facts, config = list[Points](), dict[str, Any](), dict[str, Any]()
        while offset < end and (answer := self.read(offset)) is not None:
            chunks.append(answer.points)
            config_part = answer.facts.pop("config", None)
            config |= config_part if isinstance(config_part, dict) else {}
            facts |= answer.facts
            offset += answer.used
        return FileContents(join_points(chunks), facts, config, end - offset)

    def _ask(self, data: bytes, offset: int) -> SandboxReply:
        document = {"data": b64encode(data).decode(), "offset": offset}
        try:
            return check_answer(self._sandbox.run_operation(self._operation, **document), len(data))
        except Refused as error:
            reason = str(error).partition(": ")[2]
            raise BadLog(f"is damaged after byte {offset:,}: {reason}") from None
        except (TimedOut, Died) as error:
            raise BadLog(f"cannot be read after byte {offset:,}: {error}") from None


def check_answer(answer: Any, size: int) -> SandboxReply:
    """Return an answer after checking that its parts are consistent, because a compromised process may send
    anything.
    """
    try:
        names = [str(name) for name in answer["names"]]
        columns = [b64decode(column, validate=True) for column in answer["columns"]]
        name, step, value, time = (np.frombuffer(b, k) for b, k in zip(columns, COLUMN_TYPES, strict=True))
        used_bytes, metadata = int(answer["used"]), dict(answer["facts"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise invalid_reply() from None
    is_consistent = len(name) == len(step) == len(value) == len(time) and 0 <= used_bytes <= size
    in_range = not len(name) or (name.min() >= 0 and name.max() < len(names) <= MAX_PART_NAMES)
    if not (is_consistent and in_range):
        raise invalid_reply()
    return SandboxReply(used_bytes, Points(names, name.astype(np.int64), step, value, time), metadata)


def sort_by_step(points: Points) -> Points:
    """Return the values in the order of their steps, and of the log within a step."""
    order = np.argsort(points.step, kind="stable")
    return Points(
        points.names, points.name[order], points.step[order], points.value[order], points.time[order]
    )


def with_counted_steps(points: Points) -> Points:
    """Return the values in the order of new steps: the n-th value of a metric has step n, from 0."""
    order = np.argsort(points.name, kind="stable")
    sorted_names = points.name[order]
    starts = np.searchsorted(sorted_names, sorted_names)
    step = np.empty_like(points.step)
    step[order] = np.arange(len(order)) - starts
    return sort_by_step(points._replace(step=step))


class Times(NamedTuple):
    """First and last time of the values in Unix time, and the seconds since the first one."""

    started_at: float | None
    finished_at: float | None
    columns: dict[str, Floats]
    """The seconds under the name that W&B uses; empty without times."""


def times_of(points: Points) -> Times:
    """Return the times of the values."""
    finite = points.time[np.isfinite(points.time)]
    if not len(finite):
        return Times(None, None, {})
    return Times(float(finite.min()), float(finite.max()), {"_runtime": points.time - finite.min()})


def join_points(chunks: list[Points]) -> Points:
    """Return all values of a file."""
    numbers: dict[str, int] = {}
    name_indices = []
    for points in chunks:
        name_numbers = [numbers.setdefault(name, len(numbers)) for name in points.names]
        name_indices.append(np.array(name_numbers, np.int64)[points.name])
    no_values = np.empty(0)
    columns = [np.concatenate([no_values, *(points[column] for points in chunks)]) for column in (3, 4)]
    steps = np.concatenate([np.empty(0, np.int64), *(points.step for points in chunks)])
    return Points(list(numbers), np.concatenate([np.empty(0, np.int64), *name_indices]), steps, *columns)


def build_table(points: Points, step: str, extra_columns: Mapping[str, Floats]) -> Table:
    """Return a table with a row for each sequence of values with the same step, which is in the column
    `step`.

    If the log has a column with this name, its own values are used. `extra_columns` have a number for every
    value.
    """
    table = Table()
    if not len(points.step):
        return table
    starts = np.flatnonzero(np.diff(points.step, prepend=points.step[:1] - 1))
    rows = np.cumsum(np.isin(np.arange(len(points.step)), starts)) - 1
    table.lines.extend([0] * len(starts))
    new_columns = {step: points.step[starts].astype(np.float64)} | {
        name: column[starts] for name, column in extra_columns.items()
    }
    for name, values in new_columns.items():
        if name not in points.names:
            table.extend(name, np.arange(len(starts)), values)
    order = np.argsort(points.name, kind="stable")
    end_offsets = np.searchsorted(points.name[order], np.arange(len(points.names)), side="right")
    for name, indices in zip(points.names, np.split(order, end_offsets[:-1]), strict=True):
        table.extend(name, rows[indices], points.value[indices])
    return table
