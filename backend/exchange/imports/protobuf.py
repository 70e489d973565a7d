"""Read the wire format of protocol buffers: the fields of a message, without a schema.

This is pure Python on purpose: the input is untrusted, and here a wrong length raises an exception and
never accesses other memory.
Source: https://protobuf.dev/programming-guides/encoding/
"""

import struct
from collections.abc import Iterator

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

Value = int | bytes
"""An integer (from a varint or fixed bits), or the bytes of a text, a message or packed numbers."""


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield (number, value) of each field in order; raise ValueError if it is not a message."""
    offset, end = 0, len(message)
    while offset < end:
        key, offset = varint(message, offset)
        number, kind = key >> 3, key & 7
        if not number or kind not in (VARINT, FIXED64, LENGTH, FIXED32):
            raise ValueError("a field has no number or no type")
        if kind == VARINT:
            value, offset = varint(message, offset)
            yield number, value
            continue
        size = 8 if kind == FIXED64 else 4
        if kind == LENGTH:
            size, offset = varint(message, offset)
        if offset + size > end:
            raise ValueError("a field reaches beyond its message")
        payload = message[offset : offset + size]
        yield number, payload if kind == LENGTH else int.from_bytes(payload, "little")
        offset += size


def varint(message: bytes, position: int) -> tuple[int, int]:
    """Return (value, next position) of a varint, which has 7 bits in each byte."""
    value = shift = 0
    while position < len(message) and shift < 70:
        byte = message[position]
        value |= (byte & 127) << shift
        position += 1
        if byte < 128:
            return value & (1 << 64) - 1, position
        shift += 7
    raise ValueError("a number has no end")


def to_signed(value: int) -> int:
    """Return the value of an int64 with its sign."""
    return value - (1 << 64) if value >> 63 else value


def float32(value: int) -> float:
    """Return the float with these 32 bits."""
    return float(struct.unpack("<f", value.to_bytes(4, "little"))[0])


def float64(value: int) -> float:
    """Return the double with these 64 bits."""
    return float(struct.unpack("<d", value.to_bytes(8, "little"))[0])
