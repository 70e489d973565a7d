"""Framing of `.wandb` and `.swanlab` files: the log format of LevelDB after a header of seven bytes.

Blocks of 32 KiB contain chunks: checksum, length, type, data. A record consists of one chunk, or of a first,
middle and last chunks.
Formats: wandb.sdk.internal.datastore, versions 0.16 to 0.31; swanlab.sdk.internal.core_python.store,
versions 0.6 to 0.10.
"""

import struct
import zlib
from collections.abc import Iterator

from backend.exchange.imports.tfrecord import Record

WANDB, SWANLAB = b":W&B", b":SWL"
"""First bytes of a file."""
HEADER_BYTES = 7
BLOCK_BYTES = 32_768
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def records(window: bytes, offset: int) -> Iterator[Record]:
    """Yield the complete records of a part of a file that begins at byte `offset`.

    Raises ValueError if a chunk is damaged.
    """
    position, chunks = 0, list[bytes]()
    while True:
        remaining_bytes = BLOCK_BYTES - (offset + position) % BLOCK_BYTES
        if remaining_bytes < HEADER_BYTES:
            position += remaining_bytes
        if position + HEADER_BYTES > len(window):
            return
        checksum, length, kind = struct.unpack_from("<IHB", window, position)
        if checksum == length == kind == 0:
            return  # zeros after the end, which a power failure leaves
        end = position + HEADER_BYTES + length
        if end > len(window):
            return
        data = window[position + HEADER_BYTES : end]
        if not FULL <= kind <= LAST or zlib.crc32(data, zlib.crc32(bytes([kind]))) != checksum:
            raise ValueError(f"the chunk at byte {offset + position} is damaged")
        if bool(chunks) != (kind in (MIDDLE, LAST)):
            raise ValueError(f"the chunk at byte {offset + position} does not follow the one before it")
        position = end
        chunks.append(data)
        if kind in (FULL, LAST):
            yield Record(b"".join(chunks), position)
            chunks = []
