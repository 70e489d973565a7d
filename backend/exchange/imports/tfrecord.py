"""TFRecord framing of event files: length, checksum of the length, content, checksum of the content.

Source: tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details".
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

HEADER_BYTES, TRAILER_BYTES = 12, 4
_POLYNOMIAL = 0x82F63B78
"""Reflected polynomial of CRC-32C."""


def _table_entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_CRC_TABLE = [_table_entry(byte) for byte in range(256)]


def masked_crc32c(data: bytes) -> int:
    """Return the CRC-32C, rotated and offset as TFRecord stores it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def is_framed(head: bytes) -> bool:
    """Return whether a file begins with a record."""
    return record_bytes(head) is not None


def record_bytes(head: bytes, position: int = 0) -> int | None:
    """Return the size of the record at a position, including its frame; None if there is no record."""
    header = head[position : position + HEADER_BYTES]
    return _size(header) if len(header) == HEADER_BYTES else None


@lru_cache(maxsize=4096)
def _size(header: bytes) -> int | None:
    """Return the size of a record. The result is cached because records of the same length share a header."""
    length, checksum = struct.unpack("<QI", header)
    if masked_crc32c(header[:8]) != checksum:
        return None
    return HEADER_BYTES + int(length) + TRAILER_BYTES


class Record(NamedTuple):
    """The content of a record and the position after it."""

    content: bytes
    end: int


def records(window: bytes) -> Iterator[Record]:
    """Yield the complete records in a part of a file; raise ValueError if no record begins there."""
    position = 0
    while position + HEADER_BYTES <= len(window):
        size = record_bytes(window, position)
        if size is None:
            raise ValueError(f"no record begins at byte {position}")
        if position + size > len(window):
            return
        yield Record(window[position + HEADER_BYTES : position + size - TRAILER_BYTES], position + size)
        position += size
