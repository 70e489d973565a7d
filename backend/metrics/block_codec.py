"""The bytes of a metric block: points of one metric as columns, compressed, with a checksum.

    1 byte     COMPRESSED: the rest is a zstd frame of the content, with its checksum (XXH64)
               PLAIN: 4 bytes of CRC-32 of the content, and the content
    content, little-endian:
        u8         layout of the values: DOUBLES, PLANES, DIFFERENCES or FLOATS
        u8         steps: GAPS, DENSE (each is the one before plus one) or LISTED
        u32, i32   number of points, first step
        steps      GAPS: distances to the step before as u32, byte planes; LISTED: each as i32
        values     DOUBLES: float64; FLOATS: float32 that are equal to them; PLANES: the lowest byte of each
                   float64, then the next byte of each, up to the sign; DIFFERENCES: planes of each value's
                   bits minus those of the value before (modulo 2^64), the first one's minus 0

What float32 holds is stored so, and what planes or differences make much smaller (counters, shares,
constants) as these; the others are read as fast as a file of numbers. Every bit of a value is kept, also that
of NaN and -0.0. Outlines are PLAIN, as they are read by the thousand.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

COMPRESSED, PLAIN = b"\1", b"\2"

DOUBLES, PLANES, DIFFERENCES, FLOATS = range(4)

GAPS, DENSE, LISTED = range(3)

HEADER = struct.Struct("<BBIi")
HEADERS = np.dtype([("layout", "u1"), ("steps", "u1"), ("count", "<u4"), ("first", "<i4")])
"""The same, to read many at once."""
NUMBERS = np.dtype([(name, np.int64) for name in HEADERS.names or ()])
"""The same, to calculate with."""

MOST_POINTS = 2**16
"""No block has more: a limit for bytes that somebody else made."""

AT_ONCE = 2**19
"""Bytes of content that are decoded together; their memory is used again for the next."""

LEAST_GAIN = 1 / 3
"""Values are taken apart where it saves this share of their bytes: it takes time to put them together."""

FAST, SMALL = -1, 3
"""Levels of zstd: without and with entropy coding."""

CHECKSUM = struct.Struct("<I")
PLAIN_HEADER = len(PLAIN) + CHECKSUM.size

VALUE, FLOAT, BITS = np.dtype("<f8"), np.dtype("<f4"), np.dtype("<u8")
DISTANCE, STEP = np.dtype("<u4"), np.dtype("<i4")
WIDTHS = {DOUBLES: 8, PLANES: 8, DIFFERENCES: 8, FLOATS: 4}

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class BlockDamaged(ValueError):
    """The bytes of a block are not what was written."""


class BlockNewer(BlockDamaged):
    """A newer version of the program wrote the block."""


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
    kind = DENSE if (distances == 1).all() else GAPS
    where = [] if kind == DENSE else _planes(distances)
    bits = np.ascontiguousarray(values, VALUE).view(BITS)
    head = partial(_header, kind=kind, steps=steps)
    floats = _floats(values)
    best = (
        _frame([head(DOUBLES), *where, bits.tobytes()], FAST)
        if floats is None
        else _frame([head(FLOATS), *where, floats], FAST)
    )
    for layout, columns in ((PLANES, bits), (DIFFERENCES, np.diff(bits, prepend=BITS.type(0)))):
        frame = _frame([head(layout), *where, *_planes(columns)], SMALL)
        if len(frame) < (1 - LEAST_GAIN) * len(best):
            best = frame
    return COMPRESSED + best


def encode_outline(steps: Ints, values: Floats) -> bytes:
    """The same, quicker to read."""
    header = _header(DOUBLES, kind=LISTED, steps=steps)
    payload = header + steps.astype(STEP).tobytes() + values.astype(VALUE).tobytes()
    return PLAIN + CHECKSUM.pack(zlib.crc32(payload)) + payload


def _floats(values: Floats) -> bytes | None:
    """The values as float32, where each is equal to the last bit."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        floats = values.astype(FLOAT)
    same = floats.astype(VALUE).view(BITS) == np.ascontiguousarray(values, VALUE).view(BITS)
    return floats.tobytes() if same.all() else None


def _planes(numbers: NDArray[Any]) -> list[bytes]:
    return [plane.tobytes() for plane in numbers.view(np.uint8).reshape(-1, numbers.itemsize).T]


def _header(layout: int, *, kind: int, steps: Ints) -> bytes:
    return HEADER.pack(layout, kind, len(steps), int(steps[0]))


def _frame(parts: Sequence[bytes], level: int) -> bytes:
    """Each part is a block of its own within the frame: noise does not spoil what compresses beside it."""
    writer = zstandard.ZstdCompressor(level=level, write_checksum=True).compressobj(size=sum(map(len, parts)))
    written = []
    for column in parts:
        written += [writer.compress(column), writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)]
    return b"".join([*written, writer.flush()])


def decode(data: bytes) -> Columns:
    """The points of one block; raises BlockDamaged."""
    block_content = content(data)
    return decode_all([block_content], count_of(block_content))


def content(
    data: bytes,
    reader: zstandard.ZstdDecompressor | None = None,
    *,
    points: int | None = None,
    within: tuple[int, int] = (-(2**31), 2**31 - 1),
) -> bytes:
    """The content of a block, not yet decoded; raises BlockDamaged.

    `points` were written, of which an outline holds some, at steps `within` a first and a last one.

    One function: a chart reads hundreds of blocks.
    """
    kind = data[:1]
    if kind == PLAIN:
        payload = data[PLAIN_HEADER:]
        if len(payload) < HEADER.size or CHECKSUM.unpack_from(data, 1)[0] != zlib.crc32(payload):
            raise BlockDamaged("its checksum does not fit")
    elif kind == COMPRESSED:
        payload = _unpacked(memoryview(data)[1:], reader or zstandard.ZstdDecompressor())
    else:
        kind_of_error = BlockNewer if data else BlockDamaged
        raise kind_of_error(f"its version is {data[0] if data else None}, expected 1 or 2")
    layout, steps, count, first = HEADER.unpack_from(payload)
    is_known = layout <= FLOATS and steps <= LISTED and (steps != LISTED or layout == DOUBLES)
    places = 0 if steps == DENSE else count if steps == LISTED else count - 1
    if not is_known or count == 0 or len(payload) != HEADER.size + 4 * places + count * WIDTHS[layout]:
        raise BlockDamaged("its header is wrong")
    most = MOST_POINTS if points is None else min(points, MOST_POINTS)
    if count > most or (count != points and points is not None and kind == COMPRESSED):
        raise BlockDamaged(f"it holds {count} points, {points or MOST_POINTS} were written")
    if not within[0] <= first <= within[1] - count + 1:
        raise BlockDamaged(f"it begins at step {first}, expected steps {within[0]} to {within[1]}")
    return payload


def _unpacked(frame: memoryview, reader: zstandard.ZstdDecompressor) -> bytes:
    try:
        size = zstandard.frame_content_size(frame)
        if not HEADER.size <= size <= HEADER.size + MOST_POINTS * (VALUE.itemsize + DISTANCE.itemsize):
            raise BlockDamaged(f"it says that it holds {size} bytes")
        return reader.decompress(frame)
    except zstandard.ZstdError as error:
        raise BlockDamaged(str(error)) from None


def count_of(content: bytes) -> int:
    """Number of points of a `content`."""
    count: int = HEADER.unpack_from(content)[2]
    return count


def decode_all(contents: Iterable[bytes], most: int) -> Columns:
    """The points of several blocks in one, of their `content`; there are at most `most` of them.

    Contents are asked for a few at a time: memory for all of a long curve costs more time than reading it.
    """
    values, steps = np.empty(most, VALUE), np.empty(most, np.int64)
    counts: list[NDArray[np.int64]] = []
    first, end, is_gapless = 0, 0, True
    for batch in _batches(contents):
        headers = np.frombuffer(b"".join([block[: HEADER.size] for block in batch]), HEADERS).astype(NUMBERS)
        counts.append(headers["count"])
        begin, end = end, end + int(headers["count"].sum())
        first = first if begin else int(headers["first"][0])
        if is_gapless and not _goes_on(headers, first + begin):
            is_gapless = False
            steps[:begin] = np.arange(first, first + begin)
        _decode(batch, headers, values[begin:end], None if is_gapless else steps[begin:end])
    all_steps = np.arange(first, first + end) if is_gapless else steps[:end]
    return Columns(all_steps, values[:end], np.concatenate([np.empty(0, np.int64), *counts]))


def _batches(contents: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch, size = list[bytes](), 0
    for block in contents:
        batch.append(block)
        size += len(block)
        if size >= AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _goes_on(headers: NDArray[Any], step: int) -> bool:
    """Whether the blocks have every step from this one on."""
    follows = headers["first"] == step + np.cumsum(headers["count"]) - headers["count"]
    return bool(((headers["steps"] == DENSE) & follows).all())


def _decode(contents: Sequence[bytes], headers: NDArray[Any], values: Floats, steps: Ints | None) -> None:
    """Write the points of blocks to where they belong; `steps` is None where each follows the one before."""
    counts, firsts = headers["count"], headers["first"]
    ends = np.cumsum(counts)
    if ((headers["steps"] == DENSE) & (headers["layout"] == DOUBLES)).all():  # the usual, and its quick way
        if steps is not None:
            np.add(np.arange(ends[-1]), np.repeat(firsts - ends + counts, counts), out=steps)
        values[:] = np.frombuffer(b"".join([memoryview(block)[HEADER.size :] for block in contents]), VALUE)
        return
    for begin, end in _alike(headers):
        layout, kind, count, _ = headers[begin].tolist()
        span = slice(ends[begin] - count, ends[end - 1])
        alike = contents[begin:end]
        if kind == LISTED:
            listed, values[span] = _listed(alike, counts[begin:end].tolist())
            if steps is not None:
                steps[span] = listed
            continue
        rows = np.frombuffer(b"".join(alike), np.uint8).reshape(end - begin, -1)
        first_value = rows.shape[1] - count * WIDTHS[layout]
        _read_values(layout, rows[:, first_value:], values[span].reshape(end - begin, count))
        if steps is not None:
            to = steps[span].reshape(end - begin, count)
            np.add(firsts[begin:end, None], 0 if kind == GAPS else np.arange(count), out=to)
            if kind == GAPS:
                to[:, 1:] += np.cumsum(
                    _joined(rows[:, HEADER.size : first_value], DISTANCE), axis=1, dtype=np.int64
                )


def _alike(headers: NDArray[Any]) -> list[tuple[int, int]]:
    """Neighbours that are read at once: of one shape, as a long curve has a thousand of them, or listed."""
    shapes = headers["layout"] << 40 | headers["steps"] << 36
    shapes |= np.where(headers["steps"] == LISTED, 0, headers["count"])
    changes = np.flatnonzero(shapes[1:] != shapes[:-1]) + 1
    return list(pairwise([0, *changes.tolist(), len(headers)]))


def _listed(contents: Sequence[bytes], counts: Sequence[int]) -> tuple[NDArray[Any], NDArray[Any]]:
    ends = [HEADER.size + STEP.itemsize * count for count in counts]
    views = [memoryview(block) for block in contents]
    steps = b"".join([view[HEADER.size : end] for view, end in zip(views, ends, strict=True)])
    values = b"".join([view[end:] for view, end in zip(views, ends, strict=True)])
    return np.frombuffer(steps, STEP), np.frombuffer(values, VALUE)


def _read_values(layout: int, columns: NDArray[np.uint8], to: Floats) -> None:
    if layout == DOUBLES:
        to.view(np.uint8)[:] = columns
    elif layout == FLOATS:
        to[:] = np.ascontiguousarray(columns).view(FLOAT)
    else:
        _join(columns, to)
    if layout == DIFFERENCES:
        bits = to.view(BITS)
        np.cumsum(bits, axis=1, out=bits)


def _joined(planes: NDArray[np.uint8], kind: np.dtype[Any]) -> NDArray[Any]:
    joined = np.empty((len(planes), planes.shape[1] // kind.itemsize), kind)
    _join(planes, joined)
    return joined


def _join(planes: NDArray[np.uint8], to: NDArray[Any]) -> None:
    """Numbers of their byte planes, row by row."""
    apart = planes.reshape(len(planes), to.itemsize, -1)
    together = to.view(np.uint8).reshape(*to.shape, to.itemsize)
    for byte in range(to.itemsize):
        together[:, :, byte] = apart[:, byte]
