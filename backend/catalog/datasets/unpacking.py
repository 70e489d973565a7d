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
"""Zstandard may make a block of 128 kB of 4 bytes: what these can become fits into 16 MB of memory."""

WINDOW_BYTES = 1 << 25
"""Memory that a zstd frame may ask for; levels up to 19 ask for a quarter of it."""

MAX_RATIO = 250
RATIO_FREE_BYTES = 1_000_000
"""Text that is packed better than 1 to 250, beyond the first MB, was made to fill a disk."""


class BadFile(ValueError):
    """A file that cannot be unpacked, or should not be."""


def unpacked(file: IO[bytes], kind: str, *, max_bytes: int) -> Iterator[bytes]:
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


def _plain(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece


def _gunzipped(file: IO[bytes]) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file) as content:
        while piece := content.read1(PIECE_BYTES):  # of a file that is cut, what comes before
            yield piece


def _unzstd(file: IO[bytes]) -> Iterator[bytes]:
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


_READERS = {".jsonl": _plain, ".jsonl.gz": _gunzipped, ".jsonl.zst": _unzstd}
