"""The wire format of protocol buffers: fields of a message, without a schema.

Pure Python on purpose: what it reads is hostile, and here a wrong length is an exception, never memory.
Source: https://protobuf.dev/programming-guides/encoding/
"""

import struct
from collections.abc import Iterator

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

Value = int | bytes
"""An integer of a varint or of fixed bits, or the bytes of a text, a message or packed numbers."""


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """(number, value) of each field in its order. Raises ValueError for what is no message."""
    at, end = 0, len(message)
    while at < end:
        key, at = varint(message, at)
        number, kind = key >> 3, key & 7
        if not number or kind not in (VARINT, FIXED64, LENGTH, FIXED32):
            raise ValueError("a field has no number or no type")
        if kind == VARINT:
            value, at = varint(message, at)
            yield number, value
            continue
        size = 8 if kind == FIXED64 else 4
        if kind == LENGTH:
            size, at = varint(message, at)
        if at + size > end:
            raise ValueError("a field reaches beyond its message")
        piece = message[at : at + size]
        yield number, piece if kind == LENGTH else int.from_bytes(piece, "little")
        at += size


def varint(message: bytes, at: int) -> tuple[int, int]:
    """(value, place behind it) of a number of 7 bits a byte."""
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value & (1 << 64) - 1, at
        shift += 7
    raise ValueError("a number has no end")


def signed(value: int) -> int:
    """An int64 as it is meant."""
    return value - (1 << 64) if value >> 63 else value


def float32(value: int) -> float:
    """Return the float whose 32 bits these are."""
    return float(struct.unpack("<f", value.to_bytes(4, "little"))[0])


def float64(value: int) -> float:
    """Return the double whose 64 bits these are."""
    return float(struct.unpack("<d", value.to_bytes(8, "little"))[0])
