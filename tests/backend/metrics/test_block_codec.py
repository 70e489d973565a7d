"""Tests of the encoding of blocks: lossless floats, few bytes, and detection of any damage."""

import struct
import zlib

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from backend.metrics.block_codec import (
    BlockDamaged,
    decode,
    encode,
    encode_outline,
)

BITS = st.one_of(
    st.integers(0, 2**64 - 1),
    st.sampled_from([0.0, -0.0, 1.0, float("nan"), float("inf"), float("-inf"), 5e-324]).map(
        lambda value: struct.unpack("<Q", struct.pack("<d", value))[0]
    ),
)
POINT_LISTS = st.lists(st.tuples(st.integers(1, 3), BITS), min_size=1, max_size=40)


def steps_and_values(first, points):
    """Return steps and values of points given as (distance to the previous step, bits of the value)."""
    distances, bits = zip(*points, strict=True)
    return first + np.cumsum(distances), np.array(bits, np.uint64).view(np.float64)


def test_steps_at_both_ends_of_32_bits_are_restored():
    steps = np.array([-(2**31), -1, 2**31 - 2, 2**31 - 1])
    assert decode(encode(steps, np.ones(4))).steps.tolist() == steps.tolist()


@given(st.integers(-(2**31), 2**30), POINT_LISTS)
def test_every_bit_of_every_value_is_restored(first, points):
    steps, values = steps_and_values(first, points)
    decoded = decode(encode(steps, values))
    assert decoded.steps.tolist() == steps.tolist()
    assert decoded.values.tobytes() == values.tobytes()


def test_the_format_matches_its_description():
    uncompressed = struct.pack("<I3i3d", 3, 7, 1, 2, 1.0, -0.0, 2.0)
    points = np.array([7, 8, 10]), np.array([1.0, -0.0, 2.0])
    encoded = encode(*points)
    assert encoded[0] == 1
    assert zstandard.ZstdDecompressor().decompress(encoded[1:]) == uncompressed
    assert encode_outline(*points) == b"\x02" + struct.pack("<I", zlib.crc32(uncompressed)) + uncompressed


@pytest.mark.parametrize("write", [encode, encode_outline])
def test_damage_is_detected_at_any_position(write):
    steps, values = np.arange(60), np.random.default_rng(1).normal(0, 1, 60)
    encoded = write(steps, values)
    unnoticed = 0
    for offset in range(len(encoded)):
        for bit in range(8):
            damaged_bytes = bytearray(encoded)
            damaged_bytes[offset] ^= 1 << bit
            try:
                decoded = decode(bytes(damaged_bytes))
            except BlockDamaged:
                continue
            unnoticed += 1
            assert decoded.values.tobytes() == values.tobytes()  # an unused bit in the zstd header
    assert unnoticed <= 8


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x03" + encode(np.arange(3), np.ones(3))[1:],
        b"\x02" + encode_outline(np.arange(3), np.ones(3))[2:],
        b"\x01" + zstandard.compress(bytes(10**8)),
        b"\x01" + zstandard.compress(b"\0" * 4),
        b"\x01" + zstandard.compress(struct.pack("<I", 0) + bytes(12)),
        b"\x01" + zstandard.compress(struct.pack("<I", 2**32 - 1) + bytes(12)),
        b"\x01" + zstandard.compress(struct.pack("<I", 1) + bytes(24)),
        encode(np.arange(3), np.ones(3))[:-1],
    ],
    ids=["empty", "no frame", "newer", "sum", "bomb", "short", "no point", "many", "long", "cut"],
)
def test_bytes_that_are_not_a_block_are_refused(data):
    with pytest.raises(BlockDamaged):
        decode(data)
