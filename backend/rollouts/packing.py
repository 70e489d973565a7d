"""Texts and per-token values as compact bytes, and back, exactly.

A text is zstd of its UTF-8 bytes; lone surrogates and NUL, which models do write, are kept. The tokens
of one group are a single zstd frame:

    4 bytes                    length of the header, little endian
    header, JSON               {"lengths": [T per completion], "strings": [bytes of each token's string],
                                "arrays": {name: [completions that have it]}, "ids": whether ids are there}
    strings                    all token strings, one after another
    ids                        int32, all completions one after another
    arrays                     float32, for each name the completions that have it
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import orjson
import zstandard
from numpy.typing import NDArray

LEVEL = 3
LIMIT_BYTES = 1 << 30
"""No stored text or group is longer; a damaged length is not believed."""

_local = threading.local()  # compressors must not be shared between threads


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one completion."""

    strings: Sequence[str]
    """What each token adds to the text, length T."""
    ids: NDArray[np.int32]
    """(T,) token ids."""
    arrays: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """(T,) values by name, e.g. logprob, entropy, ratio."""


def pack_text(text: str) -> bytes:
    """The exact text as zstd."""
    return _compress(_encoded(text))


def unpack_text(data: bytes) -> str:
    """The text that `pack_text` was given."""
    return _decompress(data).decode("utf-8", "surrogatepass")


def pack_tokens(completions: Sequence[Tokens]) -> bytes:
    """The tokens of a group's completions, in order."""
    strings = [part for tokens in completions for part in tokens.strings]
    text = "".join(strings)
    is_ascii = text.isascii()
    sizes = map(len, strings if is_ascii else map(_encoded, strings))
    lengths = [len(tokens.strings) for tokens in completions]
    names = sorted({name for tokens in completions for name in tokens.arrays})
    having = {name: [n for n, tokens in enumerate(completions) if name in tokens.arrays] for name in names}
    header = {"lengths": lengths, "strings": list(sizes), "arrays": having}
    ids = _joined([tokens.ids for tokens in completions], "<i4")
    columns = []
    for name, who in having.items():
        arrays = [completions[n].arrays[name] for n in who]
        if wrong := [n for n, array in zip(who, arrays, strict=True) if np.shape(array) != (lengths[n],)]:
            shape, count = np.shape(completions[wrong[0]].arrays[name]), lengths[wrong[0]]
            raise ValueError(f"array {name!r} has shape {shape} for {count} tokens")
        columns.append(_joined(arrays, "<f4"))
    head = orjson.dumps(header)
    return _compress(b"".join([len(head).to_bytes(4, "little"), head, _encoded(text), ids, *columns]))


def _joined(arrays: Sequence[NDArray[Any]], kind: str) -> bytes:
    return np.concatenate(arrays).astype(kind, copy=False).tobytes() if arrays else b""


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def unpack_tokens(data: bytes) -> list[Tokens]:
    """The tokens that `pack_tokens` packed."""
    raw = _decompress(data)
    start = 4 + int.from_bytes(raw[:4], "little")
    header = json.loads(raw[4:start])
    lengths: list[int] = header["lengths"]
    ends = list(accumulate(header["strings"], initial=start))
    strings = [raw[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(ends)]
    offsets = list(accumulate(lengths, initial=0))
    place = ends[-1]
    ids = np.frombuffer(raw, "<i4", offsets[-1], place)
    place += 4 * offsets[-1]
    arrays: list[dict[str, NDArray[np.float32]]] = [{} for _ in lengths]
    for name, having in header["arrays"].items():
        for n in having:
            arrays[n][name] = np.frombuffer(raw, "<f4", lengths[n], place)
            place += 4 * lengths[n]
    bounds = list(pairwise(offsets))
    return [Tokens(strings[a:b], ids[a:b], arrays[n]) for n, (a, b) in enumerate(bounds)]


def _compress(raw: bytes) -> bytes:
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(level=LEVEL)
    packed: bytes = _local.compressor.compress(raw)
    return packed


def _decompress(data: bytes) -> bytes:
    if not hasattr(_local, "decompressor"):
        _local.decompressor = zstandard.ZstdDecompressor()
    raw: bytes = _local.decompressor.decompress(data, max_output_size=LIMIT_BYTES)
    return raw
