"""Binary format of a metric block, which has points of one metric as compressed columns with a checksum.

    1 byte     COMPRESSED: the rest is a zstd frame of the content, with its checksum (XXH64)
               PLAIN: 4 bytes of CRC-32 of the content, and the content
    content, little-endian:
        u32        number of points
        steps      the first step, then the distance of each step to the one before, as i32
        values     float64, with every bit of NaN and -0.0

Outlines are PLAIN, because thousands of them are read at a time.
"""

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import zstandard
from numpy.typing import NDArray

COMPRESSED, PLAIN = b"\1", b"\2"

COUNT_FORMAT = struct.Struct("<I")
CHECKSUM_FORMAT = struct.Struct("<I")
STEP_DTYPE, VALUE_DTYPE = np.dtype("<i4"), np.dtype("<f8")
FIRST_STEP_FORMAT = struct.Struct("<i")

MAX_BLOCK_POINTS = 2**16
"""Maximum number of points of a block, as a limit for untrusted bytes."""

COMPRESSION_LEVEL = 3

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class BlockDamaged(ValueError):
    """The bytes of a block are damaged."""


class BlockNewer(BlockDamaged):
    """The block was written by a newer version of the program."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Points of one or more blocks as columns."""

    steps: Ints
    values: Floats
    counts: Ints
    """Number of points of each block."""


def encode(steps: Ints, values: Floats) -> bytes:
    """Encode at least one point as a block. The steps must be increasing."""
    compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
    return COMPRESSED + compressor.compress(_encode_content(steps, values))


def encode_outline(steps: Ints, values: Floats) -> bytes:
    """Encode the points of an outline without compression, which is faster to read."""
    content = _encode_content(steps, values)
    return PLAIN + CHECKSUM_FORMAT.pack(zlib.crc32(content)) + content


def _encode_content(steps: Ints, values: Floats) -> bytes:
    distances = np.diff(steps, prepend=0).astype(STEP_DTYPE)
    return COUNT_FORMAT.pack(len(steps)) + distances.tobytes() + values.astype(VALUE_DTYPE).tobytes()


def decode(data: bytes) -> Columns:
    """Decode the points of a block. Raises BlockDamaged."""
    block = read_content(data)
    return decode_all([block], count_points(block))


def decode_row(
    data: bytes, *, points: int, first: int, last: int, reader: zstandard.ZstdDecompressor | None = None
) -> Columns:
    """Decode the points of a block. Raises BlockDamaged if they do not agree with its row.

    There must be `points` points at steps from `first` to exactly `last`.
    """
    columns = decode_all([read_content(data, reader, points=points)], points)
    steps = columns.steps
    if steps[0] < first or steps[-1] != last or (steps[1:] <= steps[:-1]).any():
        raise BlockDamaged("its steps are those of another block")
    return columns


def read_content(
    data: bytes,
    reader: zstandard.ZstdDecompressor | None = None,
    *,
    points: int | None = None,
    allowed_steps: tuple[int, int] = (-(2**31), 2**31 - 1),
) -> bytes:
    """Decompress and check the content of a block, without decoding it. Raises BlockDamaged.

    The block must have `points` points, or fewer if it is an outline, and its first step must be
    `allowed_steps` a range.
    """
    kind = data[:1]
    if kind == PLAIN:
        block = data[1 + CHECKSUM_FORMAT.size :]
        if len(data) < 1 + CHECKSUM_FORMAT.size or CHECKSUM_FORMAT.unpack_from(data, 1)[0] != zlib.crc32(
            block
        ):
            raise BlockDamaged("its checksum does not fit")
    elif kind == COMPRESSED:
        block = _decompress(memoryview(data)[1:], reader or zstandard.ZstdDecompressor())
    else:
        error_class = BlockNewer if data else BlockDamaged
        raise error_class(f"its version is {data[0] if data else None}, expected 1 or 2")
    count = count_points(block)
    if count == 0 or len(block) != _size(count):
        raise BlockDamaged("its header is wrong")
    limit = MAX_BLOCK_POINTS if points is None else min(points, MAX_BLOCK_POINTS)
    if count > limit or (count != points and points is not None and kind == COMPRESSED):
        raise BlockDamaged(f"it holds {count} points, {points or MAX_BLOCK_POINTS} were written")
    first_step: int = FIRST_STEP_FORMAT.unpack_from(block, COUNT_FORMAT.size)[0]
    if not allowed_steps[0] <= first_step <= allowed_steps[1] - count + 1:
        raise BlockDamaged(
            f"it begins at step {first_step}, expected steps {allowed_steps[0]} to {allowed_steps[1]}"
        )
    return block


def _size(count: int) -> int:
    """Return the size of the content for `count` points, in bytes."""
    return COUNT_FORMAT.size + count * (STEP_DTYPE.itemsize + VALUE_DTYPE.itemsize)


def _decompress(frame: memoryview, reader: zstandard.ZstdDecompressor) -> bytes:
    try:
        size = zstandard.frame_content_size(frame)
        if not _size(1) <= size <= _size(MAX_BLOCK_POINTS):  # the library allocates the declared size
            raise BlockDamaged(f"it declares {size} bytes")
        return reader.decompress(frame)
    except zstandard.ZstdError as error:
        raise BlockDamaged(str(error)) from None


def count_points(block: bytes) -> int:
    """Return the number of points that a content declares, or 0 if it is too short."""
    return COUNT_FORMAT.unpack_from(block)[0] if len(block) >= COUNT_FORMAT.size else 0


def decode_all(contents: Iterable[bytes], limit: int) -> Columns:
    """Decode the contents of several blocks, which have at most `limit` points, to joined columns.

    Contents are consumed one at a time, so that a long curve is not in memory twice.
    """
    values, distances = np.empty(limit, VALUE_DTYPE), np.empty(limit, STEP_DTYPE)
    counts: list[int] = []
    end = 0
    for block in contents:
        count = count_points(block)
        start, end = end, end + count
        distances[start:end] = np.frombuffer(block, STEP_DTYPE, count, COUNT_FORMAT.size)
        values[start:end] = np.frombuffer(
            block, VALUE_DTYPE, count, COUNT_FORMAT.size + count * STEP_DTYPE.itemsize
        )
        counts.append(count)
    sums = np.cumsum(distances[:end], dtype=STEP_DTYPE)  # modulo 2^32, like the distances
    block_ends = np.cumsum(counts, dtype=np.int64)
    previous_sums = (
        np.concatenate([np.zeros(1, STEP_DTYPE), sums[block_ends[:-1] - 1]])
        if counts
        else np.empty(0, STEP_DTYPE)
    )
    steps = (sums - np.repeat(previous_sums, counts)).astype(np.int64)
    return Columns(steps, values[:end], np.array(counts, np.int64))
