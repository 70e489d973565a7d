"""Pack texts and per-token values into compact bytes, and unpack them.

A text is its UTF-8 bytes compressed with zstd. Lone surrogates and NUL, which models do produce, are
preserved. The tokens of a group are a single zstd frame. Both have the checksum of zstd.

    4 bytes                    length of the header, little endian
    header, JSON               {"version": 3, "lengths": [T per completion],
                                "strings": [length of each token's string in bytes],
                                "arrays": {name: [indexes of its completions]}, "kinds": {name: kind},
                                "scales": {name: [one per completion]}}, 1 by default
    strings                    all token strings, concatenated
    ids                        int32, all completions concatenated
    arrays                     for each name the values of these completions, encoded by kind

Kinds of arrays (`backend.rollouts.token_values`): f4 is float32; f3 is float32 without its last eight bits;
i1 is small integers; s3 is 24-bit integers times a power of two, whose sum over a completion equals that of
the values; u3 is whole numbers below 2**24.
"""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import orjson
import zstandard
from numpy.typing import NDArray

from backend.rollouts.token_values import decode, encode, value_kind, value_width
from backend.storage.completion_codec import MAX_TEXT_BYTES

FORMAT_VERSION = 3
COMPRESSION_LEVEL = 3
MAX_UNPACKED_BYTES = 1 << 30
"""Maximum unpacked size of a group's tokens in bytes; a larger declared size is treated as damage."""

MAX_EMPTY_FRAME_BYTES = 32
"""Maximum size in bytes of a frame with an empty text."""

_local = threading.local()  # compressors must not be shared between threads


class PackedDamaged(ValueError):
    """The packed bytes are damaged, or were written by another version."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one completion."""

    strings: Sequence[str]
    """Text that each token adds, of length T."""
    ids: NDArray[np.int32]
    """(T,) token ids."""
    arrays: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """(T,) values by name, such as logprob, entropy and ratio."""


def pack_text(text: str) -> bytes:
    """Return the text compressed with zstd."""
    return _compress(_encode(text))


def unpack_text(data: bytes) -> str:
    """Return the text that was packed; raise PackedDamaged if it cannot be unpacked."""
    with _translate_errors():
        return _decompress(data, MAX_TEXT_BYTES).decode("utf-8", "surrogatepass")


def try_unpack_text(data: bytes) -> tuple[str, str]:
    """Return the text and an empty reason, or an empty text and the reason why it cannot be unpacked."""
    try:
        return unpack_text(data), ""
    except PackedDamaged as error:
        return "", str(error)


def text_bytes(data: bytes) -> int:
    """Return the declared unpacked size of a packed text in bytes; 0 if it cannot be read."""
    try:
        size: int = _declared_size(data, MAX_TEXT_BYTES)
    except (PackedDamaged, zstandard.ZstdError):
        return 0
    return size


def pack_tokens(completions: Sequence[Tokens]) -> bytes:
    """Return the packed tokens of a group's completions, in order."""
    strings = [string for tokens in completions for string in tokens.strings]
    text = "".join(strings)
    is_ascii = text.isascii()
    sizes = map(len, strings if is_ascii else map(_encode, strings))
    lengths = [len(tokens.strings) for tokens in completions]
    names = sorted({name for tokens in completions for name in tokens.arrays})
    holders_by_name = {
        name: [n for n, tokens in enumerate(completions) if name in tokens.arrays] for name in names
    }
    kinds = {name: value_kind(name) for name in names}
    scales: dict[str, list[float]] = {}
    ids = _join_arrays([tokens.ids for tokens in completions], "<i4")
    columns = []
    for name, holders in holders_by_name.items():
        arrays = [completions[n].arrays[name] for n in holders]
        if mismatched_names := [
            n for n, array in zip(holders, arrays, strict=True) if np.shape(array) != (lengths[n],)
        ]:
            shape, count = (
                np.shape(completions[mismatched_names[0]].arrays[name]),
                lengths[mismatched_names[0]],
            )
            raise ValueError(f"array {name!r} has shape {shape} for {count} tokens")
        encoded_arrays = [encode(array, kinds[name]) for array in arrays]
        columns += [data for data, _ in encoded_arrays]
        scales[name] = [scale for _, scale in encoded_arrays]
    header = {
        "version": FORMAT_VERSION,
        "lengths": lengths,
        "strings": list(sizes),
        "arrays": holders_by_name,
    }
    array_scales = {
        name: factors for name, factors in scales.items() if any(scale != 1.0 for scale in factors)
    }
    head = orjson.dumps(header | {"kinds": kinds, "scales": array_scales})
    return _compress(b"".join([len(head).to_bytes(4, "little"), head, _encode(text), ids, *columns]))


def _join_arrays(arrays: Sequence[NDArray[Any]], kind: str) -> bytes:
    return np.concatenate(arrays).astype(kind, copy=False).tobytes() if arrays else b""


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def unpack_tokens(data: bytes) -> list[Tokens]:
    """Return the tokens that `pack_tokens` packed; raise PackedDamaged if that fails."""
    with _translate_errors():
        raw = _decompress(data, MAX_UNPACKED_BYTES)
        header, start = _read_header(raw)
        end_offsets = list(accumulate(header["strings"], initial=start))
        strings = [raw[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(end_offsets)]
        offsets = list(accumulate(header["lengths"], initial=0))
        ids = np.frombuffer(raw, "<i4", offsets[-1], end_offsets[-1])
        arrays = _read_arrays(raw, header, end_offsets[-1] + 4 * offsets[-1])
        bounds = list(pairwise(offsets))
        return [Tokens(strings[a:b], ids[a:b], arrays[n]) for n, (a, b) in enumerate(bounds)]


def unpack_arrays(data: bytes) -> list[dict[str, NDArray[np.float32]]]:
    """Unpack only the values, without the strings of the tokens; raise PackedDamaged like `unpack_tokens`."""
    with _translate_errors():
        raw = _decompress(data, MAX_UNPACKED_BYTES)
        header, start = _read_header(raw)
        return _read_arrays(raw, header, start + sum(header["strings"]) + 4 * sum(header["lengths"]))


def try_unpack_arrays(data: bytes | None) -> tuple[list[dict[str, NDArray[np.float32]]], str]:
    """Return the values and an empty reason, or no values and the reason why they cannot be unpacked."""
    try:
        return [] if data is None else unpack_arrays(data), ""
    except PackedDamaged as error:
        return [], str(error)


def _read_header(raw: bytes) -> tuple[dict[str, Any], int]:
    """Return the header and its end offset."""
    start = 4 + int.from_bytes(raw[:4], "little")
    header: dict[str, Any] = json.loads(raw[4:start])
    if header["version"] != FORMAT_VERSION:
        raise PackedDamaged(
            f"tokens are packed in version {header['version']}; this program reads {FORMAT_VERSION}"
        )
    return header, start


def _read_arrays(raw: bytes, header: dict[str, Any], offset: int) -> list[dict[str, NDArray[np.float32]]]:
    """Return the values of each completion, which start at `offset`."""
    lengths: list[int] = header["lengths"]
    arrays: list[dict[str, NDArray[np.float32]]] = [{} for _ in lengths]
    for name, holders in header["arrays"].items():
        kind = header["kinds"][name]
        scales = header["scales"].get(name, [1.0] * len(holders))
        for n, scale in zip(holders, scales, strict=True):
            arrays[n][name] = decode(raw, offset, lengths[n], kind, scale)
            offset += value_width(kind) * lengths[n]
    return arrays


def _compress(raw: bytes) -> bytes:
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
    compressed: bytes = _local.compressor.compress(raw)
    return compressed


def _decompress(data: bytes, limit: int) -> bytes:
    # zstandard trusts the declared size regardless of the limit, and cannot unpack frames of size 0.
    if not _declared_size(data, limit):
        if len(data) > MAX_EMPTY_FRAME_BYTES or zstandard.ZstdDecompressor().decompressobj().decompress(data):
            raise PackedDamaged("it says that it is empty, and is not")
        return b""
    if not hasattr(_local, "decompressor"):
        _local.decompressor = zstandard.ZstdDecompressor()
    raw: bytes = _local.decompressor.decompress(data)
    return raw


def _declared_size(data: bytes, limit: int) -> int:
    """Return the declared unpacked size of a frame in bytes; raise PackedDamaged if it exceeds the limit."""
    size = zstandard.frame_content_size(data)
    if not 0 <= size <= limit:
        raise PackedDamaged(f"it declares {size} bytes, expected at most {limit}")
    return int(size)


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Convert every exception inside the `with` block to PackedDamaged."""
    try:
        yield
    except PackedDamaged:
        raise
    except (
        zstandard.ZstdError,
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise PackedDamaged(f"it cannot be unpacked: {error}") from None
