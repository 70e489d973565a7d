"""Read the names and shapes of a model's weights from the headers of its safetensors files.

A header consists of an 8-byte length and JSON of that length. Files are untrusted, so lengths, names and
shapes are limited.
"""

import json
import math
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

MAX_HEADER_BYTES = 64 * 2**20
MAX_FILES = 1000
MAX_WEIGHTS = 500_000
MAX_DIMENSIONS = 8
MAX_VALUES = 10**14
"""Maximum number of values of one weight, and of a model."""

LAYER_PATTERN = re.compile(r"\.(?:layers|h|blocks)\.(\d{1,5})\.")
FLOATING_DTYPES = frozenset({"F64", "F32", "F16", "BF16"})


class UnreadableWeights(ValueError):
    """A weight file is not a valid safetensors file of floating-point weights."""


class Weight(NamedTuple):
    """The name and shape of a weight."""

    name: str
    shape: tuple[int, ...]

    @property
    def values(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def layer(self) -> int | None:
        """Number of the layer, or None for embeddings, the final norm and the output layer."""
        match = LAYER_PATTERN.search(self.name)
        return int(match[1]) if match else None

    @property
    def module_name(self) -> str:
        """Last part of the module's name, such as q_proj."""
        return self.name.removesuffix(".weight").rpartition(".")[2]


def read_weights(directory: Path) -> tuple[Weight, ...]:
    """Return the weights in the *.safetensors files of a directory. Raises UnreadableWeights."""
    try:
        files = sorted(directory.glob("*.safetensors"))
        key = tuple((path, (status := path.stat()).st_size, status.st_mtime_ns) for path in files)
        if not key or len(key) > MAX_FILES:
            raise UnreadableWeights(f"{len(key)} weight files; expected 1 to {MAX_FILES}")
        return _read_files(key)
    except OSError as error:
        raise UnreadableWeights(f"the weights cannot be read: {error.strerror}") from error


@lru_cache(maxsize=64)
def _read_files(files: tuple[tuple[Path, int, int], ...]) -> tuple[Weight, ...]:
    return join_headers((path.name, _header(path, size)) for path, size, _ in files)


def join_headers(headers: Iterable[tuple[str, dict[str, Any]]]) -> tuple[Weight, ...]:
    """Return the weights of a model from the file names and headers. Raises UnreadableWeights."""
    weights_by_name: dict[str, Weight] = {}
    for file, header in headers:
        for name, entry in header.items():
            if name != "__metadata__":
                weights_by_name[name] = _weight(file, name, entry)
        if len(weights_by_name) > MAX_WEIGHTS:
            raise UnreadableWeights(f"more than {MAX_WEIGHTS:,} weights")
    if sum(weight.values for weight in weights_by_name.values()) > MAX_VALUES:
        raise UnreadableWeights(f"more than {MAX_VALUES:,} values")
    return tuple(weights_by_name.values())


def _header(path: Path, size: int) -> dict[str, Any]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise UnreadableWeights(f"{path.name[:80]} has no header of a safetensors file")
        return parse_header(file.read(length), path.name)


def parse_header(text: bytes, file: str) -> dict[str, Any]:
    """Return the JSON object in the header of a file. Raises UnreadableWeights."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableWeights(f"the header of {file[:80]} is not JSON") from error
    if not isinstance(header, dict):
        raise UnreadableWeights(f"the header of {file[:80]} is not a JSON object")
    return header


def _weight(file: str, name: str, entry: Any) -> Weight:
    shape = entry.get("shape") if isinstance(entry, dict) else None
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(map(_is_size, shape)):
        raise UnreadableWeights(f"{file[:80]}: {name[:80]!r} has no shape")
    kind = str(entry.get("dtype"))[:20]
    if kind not in FLOATING_DTYPES:
        raise UnreadableWeights(f"{file[:80]}: {name[:80]!r} holds {kind}, not floating-point numbers")
    if math.prod(shape) > MAX_VALUES:
        raise UnreadableWeights(f"{file[:80]}: {name[:80]!r} is larger than any model")
    return Weight(name, tuple(shape))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_VALUES
