"""Decompression of uploaded files, in pieces and within a limit, whatever is packed into them.

Three kinds are read, known by the end of the name: `.jsonl`, `.jsonl.gz`, `.jsonl.zst`. Archives are not.
"""

import gzip
import zlib
from collections.abc import Iterator
from typing import IO

import zstandard

KINDS = (".jsonl", ".jsonl.gz", ".jsonl.zst")
PIECE_BYTES = 1 << 20
ZSTD_PIECE_BYTES = 512
"""Bytes that are decompressed at a time. Four bytes can become a block of 128 kB, so the result fits in 16
MB.
"""

WINDOW_BYTES = 1 << 25
"""Largest window of a zstd frame, in bytes; levels up to 19 need a quarter of it."""

MAX_RATIO = 250
RATIO_FREE_BYTES = 1_000_000
"""Bytes of output before the compression ratio is checked; higher ratios are decompression bombs."""


class BadFile(ValueError):
    """A file that is damaged, or expands more than allowed."""


def decompress(file: IO[bytes], kind: str, *, max_bytes: int) -> Iterator[bytes]:
    """Yield the content in pieces. Raises BadFile if it is damaged or expands beyond MAX_RATIO."""
    size = 0
    try:
        for piece in _READERS[kind](file):
            size += len(piece)
            if size > max_bytes:
                raise BadFile(f"is larger than {max_bytes:,} bytes when unpacked")
            if size > RATIO_FREE_BYTES and size > MAX_RATIO * file.tell():
                raise BadFile(f"unpacks to more than {MAX_RATIO} times its size")
            yield piece
    except (gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise BadFile(f"is not what {kind} stands for ({error})") from None
    except EOFError:
        raise BadFile(f"ends in the middle of what {kind} stands for") from None


def _read_plain(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece


def _read_gzip(file: IO[bytes]) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file) as content:
        while piece := content.read1(PIECE_BYTES):  # of a file that is cut, what comes before
            yield piece


def _read_zstd(file: IO[bytes]) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES)
    frame = decompressor.decompressobj()
    while piece := file.read(ZSTD_PIECE_BYTES):
        while piece:
            if frame.eof:
                frame = decompressor.decompressobj()
            yield frame.decompress(piece)
            piece = frame.unused_data if frame.eof else b""
    if not frame.eof:
        raise EOFError


_READERS = {".jsonl": _read_plain, ".jsonl.gz": _read_gzip, ".jsonl.zst": _read_zstd}
