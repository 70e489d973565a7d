"""Framing of `.wandb` files: the log format of LevelDB behind a header of seven bytes.

Blocks of 32 KiB hold chunks: checksum, length, type, data. A record is one chunk, or a first, middle ones and
a last.
Format: wandb.sdk.internal.datastore, versions 0.16 to 0.31.
"""

import struct
import zlib
from collections.abc import Iterator

from backend.exchange.imports.tfrecord import Record

IDENT = b":W&B"
HEADER_BYTES = 7
BLOCK_BYTES = 32_768
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def records(window: bytes, offset: int) -> Iterator[Record]:
    """The complete records of a part of a file that begins at byte `offset` of it.

    Raises ValueError where a chunk is damaged.
    """
    at, begun = 0, b""
    while True:
        room = BLOCK_BYTES - (offset + at) % BLOCK_BYTES
        if room < HEADER_BYTES:
            at += room
        if at + HEADER_BYTES > len(window):
            return
        checksum, length, kind = struct.unpack_from("<IHB", window, at)
        end = at + HEADER_BYTES + length
        if end > len(window):
            return
        data = window[at + HEADER_BYTES : end]
        if not FULL <= kind <= LAST or zlib.crc32(data, zlib.crc32(bytes([kind]))) != checksum:
            raise ValueError(f"the chunk at byte {offset + at} is damaged")
        at = end
        begun = data if kind in (FULL, FIRST) else begun + data
        if kind in (FULL, LAST):
            yield Record(begun, at)
            begun = b""
