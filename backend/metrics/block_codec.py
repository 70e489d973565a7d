"""The bytes of a metric block: points of one metric as columns, compressed, with a checksum.

    1 byte     VERSION
    the rest   a zstd frame with its checksum (XXH64) of the content, which is, little-endian:
        u8         layout of the values: PLAIN, PLANES or DIFFERENCES
        u8         1 where the steps follow one another without a gap
        u32, i32   number of points, first step
        steps      where there are gaps: distances of the steps as u32, byte planes
        values     float64; as planes: first the lowest byte of each value, then the next one, up to the sign

PLANES compresses what values have in common: signs and exponents, and the zero bytes of a float32.
DIFFERENCES are planes of each value's bits minus those of the value before (modulo 2^64), for counters.
PLAIN is for values that hardly compress. Every bit of a value is kept, also that of NaN and -0.0.

Any other program can read a block: cut off the first byte, decompress, and follow the table above.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

VERSION = 1

PLAIN, PLANES, DIFFERENCES = range(3)

HEADER = struct.Struct("<BBIi")
HEADERS = np.dtype([("layout", "u1"), ("is_dense", "u1"), ("count", "<u4"), ("first", "<i4")])
"""The same, to read many at once."""

MOST_POINTS = 2**16
"""No block has more: a limit for bytes that somebody else made."""

LEAST_GAIN = 1 / 16
"""Values are taken apart where it saves this share of their bytes."""

LEVEL = 3

VALUE, BITS, DISTANCE = np.dtype("<f8"), np.dtype("<u8"), np.dtype("<u4")

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class BlockDamaged(ValueError):
    """The bytes of a block are not what was written."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Points of a metric, by step."""

    steps: Ints
    values: Floats
    counts: Ints
    """Points of each block."""


def encode(steps: Ints, values: Floats) -> bytes:
    """The block of at least one point; steps ascend."""
    distances = np.diff(steps).astype(DISTANCE)
    is_dense = bool((distances == 1).all())
    where = [] if is_dense else _planes(distances)
    bits = np.ascontiguousarray(values, VALUE).view(BITS)
    plain = [bits.tobytes()]
    head = partial(_header, is_dense=is_dense, steps=steps)
    best = _frame(head(PLAIN), [*where, *plain])
    for layout, columns in ((PLANES, bits), (DIFFERENCES, np.diff(bits, prepend=BITS.type(0)))):
        frame = _frame(head(layout), [*where, *_planes(columns)])
        if len(frame) < len(best) - LEAST_GAIN * bits.nbytes * (layout > PLAIN):
            best = frame
    return bytes([VERSION]) + best


def _planes(numbers: NDArray[Any]) -> list[bytes]:
    return [plane.tobytes() for plane in numbers.view(np.uint8).reshape(-1, numbers.itemsize).T]


def _header(layout: int, *, is_dense: bool, steps: Ints) -> bytes:
    return HEADER.pack(layout, is_dense, len(steps), int(steps[0]))


def _frame(header: bytes, parts: Sequence[bytes]) -> bytes:
    """Each part is a block of its own within the frame: noise does not spoil what compresses beside it."""
    size = len(header) + sum(map(len, parts))
    writer = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compressobj(size=size)
    written = [writer.compress(header)]
    for part in parts:
        written += [writer.compress(part), writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)]
    return b"".join([*written, writer.flush()])


def decode(data: bytes) -> Columns:
    """The points of one block; raises BlockDamaged."""
    return decode_all([content(data)])


def content(data: bytes, reader: zstandard.ZstdDecompressor | None = None) -> bytes:
    """What a block holds, not yet decoded; raises BlockDamaged where its checksum does not fit."""
    if data[:1] != bytes([VERSION]):
        raise BlockDamaged(f"its version is {data[0] if data else None}, {VERSION} is expected")
    frame = data[1:]
    try:
        size = zstandard.frame_content_size(frame)
        if not 0 < size <= HEADER.size + MOST_POINTS * (VALUE.itemsize + DISTANCE.itemsize):
            raise BlockDamaged(f"it says that it holds {size} bytes")
        found = (reader or zstandard.ZstdDecompressor()).decompress(frame)
    except zstandard.ZstdError as error:
        raise BlockDamaged(str(error)) from None
    layout, is_dense, count, _ = HEADER.unpack_from(found) if len(found) >= HEADER.size else (9, 0, 0, 0)
    wanted = HEADER.size + count * VALUE.itemsize + (0 if is_dense else (count - 1) * DISTANCE.itemsize)
    if layout > DIFFERENCES or is_dense > 1 or count == 0 or len(found) != wanted:
        raise BlockDamaged("its header is wrong")
    return found


def count_of(content: bytes) -> int:
    """Number of points of a `content`."""
    count: int = HEADER.unpack_from(content)[2]
    return count


def decode_all(contents: Sequence[bytes]) -> Columns:
    """The points of several blocks in one, of their `content`."""
    headers = np.frombuffer(b"".join([each[: HEADER.size] for each in contents]), HEADERS)
    counts, firsts = headers["count"].astype(np.int64), headers["first"].astype(np.int64)
    ends = np.cumsum(counts)
    values = np.empty(ends[-1], VALUE)
    is_gapless = bool(headers["is_dense"].all() and (np.diff(firsts) == counts[:-1]).all())
    steps = np.arange(firsts[0], firsts[0] + ends[-1]) if is_gapless else np.empty(ends[-1], np.int64)
    for begin, end in _alike(headers):
        layout, is_dense, count, _ = headers[begin].tolist()
        rows = np.frombuffer(b"".join(contents[begin:end]), np.uint8).reshape(end - begin, -1)
        place = slice(ends[begin] - count, ends[end - 1])
        first_value = rows.shape[1] - count * VALUE.itemsize
        _read_values(layout, rows[:, first_value:], values[place].reshape(end - begin, count))
        if not is_gapless:
            distances = 1 if is_dense else _joined(rows[:, HEADER.size : first_value], DISTANCE)
            _read_steps(firsts[begin:end], distances, steps[place].reshape(end - begin, count))
    return Columns(steps, values, counts)


def _alike(headers: NDArray[Any]) -> list[tuple[int, int]]:
    """Neighbours of one shape, to be read at once: a long curve has a thousand of them."""
    shapes = headers.view([("shape", "V6"), ("first", "<i4")])["shape"]
    changes = np.flatnonzero(shapes[1:] != shapes[:-1]) + 1
    return list(pairwise([0, *changes.tolist(), len(headers)]))


def _read_steps(firsts: Ints, distances: Any, to: Ints) -> None:
    to[:, 0], to[:, 1:] = firsts, distances
    np.cumsum(to, axis=1, out=to)


def _read_values(layout: int, columns: NDArray[np.uint8], to: Floats) -> None:
    if layout == PLAIN:
        to.view(np.uint8)[:] = columns
        return
    _join(columns, to)
    if layout == DIFFERENCES:
        bits = to.view(BITS)
        np.cumsum(bits, axis=1, out=bits)


def _joined(planes: NDArray[np.uint8], kind: np.dtype[Any]) -> NDArray[Any]:
    found = np.empty((len(planes), planes.shape[1] // kind.itemsize), kind)
    _join(planes, found)
    return found


def _join(planes: NDArray[np.uint8], to: NDArray[Any]) -> None:
    """Numbers of their byte planes, row by row."""
    apart = planes.reshape(len(planes), to.itemsize, -1)
    together = to.view(np.uint8).reshape(*to.shape, to.itemsize)
    for place in range(to.itemsize):
        together[:, :, place] = apart[:, place]
