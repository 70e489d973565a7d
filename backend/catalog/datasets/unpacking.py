"""Decompress uploaded files in pieces and within a size limit.

The file name must end with `.jsonl`, `.jsonl.gz` or `.jsonl.zst`. Archives are not supported.
"""

import gzip
import zlib
from collections.abc import Iterator
from typing import IO

import zstandard

KINDS = (".jsonl", ".jsonl.gz", ".jsonl.zst")
PIECE_BYTES = 1 << 20
ZSTD_PIECE_BYTES = 512
"""Number of bytes that are decompressed at a time. They expand to at most 16 MB,
because four bytes can become a block of 128 kB.
"""

MAX_WINDOW_BYTES = 1 << 25
"""Maximum window of a zstd frame, in bytes. Levels up to 19 need a quarter of it."""

MAX_COMPRESSION_RATIO = 250
RATIO_FREE_BYTES = 1_000_000
"""Size of the output up to which the compression ratio is not checked, in bytes."""


class BadFile(ValueError):
    """The file is damaged or expands more than allowed."""


def decompress(file: IO[bytes], kind: str, *, max_bytes: int) -> Iterator[bytes]:
    """Yield the content in pieces. Raises BadFile if it is damaged or exceeds `max_bytes` or
    MAX_COMPRESSION_RATIO.
    """
    size = 0
    try:
        for chunk in _READERS[kind](file):
            size += len(chunk)
            if size > max_bytes:
                raise BadFile(f"is larger than {max_bytes:,} bytes when unpacked")
            if size > RATIO_FREE_BYTES and size > MAX_COMPRESSION_RATIO * file.tell():
                raise BadFile(f"unpacks to more than {MAX_COMPRESSION_RATIO} times its size")
            yield chunk
    except (gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise BadFile(f"is not a valid {kind} file ({error})") from None
    except EOFError:
        raise BadFile(f"is truncated: the {kind} data is incomplete") from None


def _read_plain(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(PIECE_BYTES):
        yield chunk


def _read_gzip(file: IO[bytes]) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file) as content:
        while chunk := content.read1(PIECE_BYTES):  # returns the data before the end of a truncated file
            yield chunk


def _read_zstd(file: IO[bytes]) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    frame = decompressor.decompressobj()
    while chunk := file.read(ZSTD_PIECE_BYTES):
        while chunk:
            if frame.eof:
                frame = decompressor.decompressobj()
            yield frame.decompress(chunk)
            chunk = frame.unused_data if frame.eof else b""
    if not frame.eof:
        raise EOFError


_READERS = {".jsonl": _read_plain, ".jsonl.gz": _read_gzip, ".jsonl.zst": _read_zstd}
