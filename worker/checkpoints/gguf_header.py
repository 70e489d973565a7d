"""Read and validate the header of a GGUF file.

A file consists of `GGUF`, a version, the numbers of tensors and of keys, the keys with their values, the
tensors with name, shape, type and offset, and the weights. It is untrusted: every count, length and size is
compared with the size of the file and with the limits of language models.
"""

import math
import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

VERSIONS = (2, 3)
MAX_HEADER_BYTES = 256 * 2**20
MAX_STRING_BYTES = 2**20
MAX_ENTRIES = 2_000_000
"""Maximum number of entries in a list, which is more than any vocabulary has."""

MAX_KEYS = 10_000
MAX_TENSORS = 100_000
MAX_DIMENSIONS = 4
MAX_CONFIG_NUMBER = 10**8
"""Maximum of a number in the config. Larger numbers are not sizes."""

MAX_LAYERS = 1_000

STRING, LIST = 8, 9
VALUE_FORMATS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
"""Struct format of each value type with a fixed width."""

BLOCK_SIZES = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 8: (32, 34), 10: (256, 84), 11: (256, 110),
    12: (256, 144), 13: (256, 176), 14: (256, 210), 16: (256, 66), 17: (256, 74), 18: (256, 98),
    19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 29: (256, 56), 30: (1, 2),
}  # fmt: skip
"""Values per block and bytes per block, for each type of weights that transformers unpacks."""


class BadGguf(ValueError):
    """Raised with the reason for a file that is not a complete GGUF file of a language model."""


class GgufHeader(NamedTuple):
    """The contents of a file according to its header."""

    architecture: str
    licence: str
    """Licence named by the file, or "" if it names none."""
    values: int
    """Total number of values of all weights."""
    has_chat_template: bool


def read_header(path: Path) -> GgufHeader:
    """Return the header of a file with complete weights. Raise BadGguf or OSError."""
    with path.open("rb") as file:
        reader = _Reader(file, path.stat().st_size)
        if reader.read_bytes(4) != b"GGUF":
            raise BadGguf("it does not begin as a GGUF file")
        version = reader.number("<I")
        if version not in VERSIONS:
            raise BadGguf(f"it is GGUF version {version}; expected {' or '.join(map(str, VERSIONS))}")
        tensors = reader.count(MAX_TENSORS, "tensors", unsigned="<Q")
        keys = dict(reader.key() for _ in range(reader.count(MAX_KEYS, "keys", unsigned="<Q")))
        _check_keys(keys)
        shapes = [reader.tensor() for _ in range(tensors)]
        _check_ends(
            shapes, data_offset=reader.position, alignment=keys.get("general.alignment", 32), size=reader.size
        )
    return GgufHeader(
        architecture=str(keys["general.architecture"])[:64],
        licence=str(keys.get("general.license", ""))[:64],
        values=sum(tensor.values for tensor in shapes),
        has_chat_template=bool(keys.get("tokenizer.chat_template")),
    )


class _Tensor(NamedTuple):
    values: int
    offset: int
    """Number of bytes from the start of the weights."""
    size: int


class _Reader:
    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self.size = size
        self.position = 0

    def read_bytes(self, count: int) -> bytes:
        self._pass(count)
        return self._file.read(count)

    def _pass(self, count: int) -> None:
        self.position += count
        if self.position > self.size:
            raise BadGguf("it ends within its header: it is not a whole file")
        if self.position > MAX_HEADER_BYTES:
            raise BadGguf(f"its header is longer than {MAX_HEADER_BYTES:,} bytes")

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.read_bytes(struct.calcsize(form)))[0]

    def count(self, limit: int, noun: str, *, unsigned: str) -> int:
        count: int = self.number(unsigned)
        if count > limit:
            raise BadGguf(f"it says that it has {count:,} {noun}; expected at most {limit:,}")
        return count

    def text(self) -> str:
        length = self.count(MAX_STRING_BYTES, "bytes of one text", unsigned="<Q")
        return self.read_bytes(length).decode(errors="replace")

    def key(self) -> tuple[str, Any]:
        return self.text(), self.value(self.number("<I"))

    def value(self, kind: int) -> Any:
        if kind in VALUE_FORMATS:
            return self.number(VALUE_FORMATS[kind])
        if kind == STRING:
            return self.text()
        if kind != LIST:
            raise BadGguf(f"it has a value of type {kind}, which GGUF does not know")
        return self._list()

    def _list(self) -> list[Any]:
        """Return the numbers of a list. Lists of texts, such as vocabularies, are read but not returned."""
        kind = self.number("<I")
        count = self.count(MAX_ENTRIES, "entries in one list", unsigned="<Q")
        if kind in VALUE_FORMATS:
            return [self.number(VALUE_FORMATS[kind]) for _ in range(count)]
        if kind != STRING:
            raise BadGguf(f"it has a list of values of type {kind}")
        for _ in range(count):
            self.text()
        return []

    def tensor(self) -> _Tensor:
        name = self.text()
        dimensions = self.count(MAX_DIMENSIONS, "dimensions of one tensor", unsigned="<I")
        shape = [self.number("<Q") for _ in range(dimensions)]
        kind = self.number("<I")
        offset = self.number("<Q")
        if kind not in BLOCK_SIZES:
            raise BadGguf(
                f"its weight {name[:80]!r} is quantised as type {kind}, which cannot be unpacked here"
            )
        in_block, block_bytes = BLOCK_SIZES[kind]
        values = math.prod(shape)
        if not shape or not all(shape) or shape[0] % in_block:
            raise BadGguf(f"its weight {name[:80]!r} has the shape {shape}, which does not fit its type")
        return _Tensor(values, offset, values // in_block * block_bytes)


def _check_keys(keys: dict[str, Any]) -> None:
    architecture = keys.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise BadGguf("it names no architecture")
    if isinstance(part_count := keys.get("split.count"), int) and part_count > 1:
        raise BadGguf(
            f"it is one of {part_count} parts of a model: join them first (llama-gguf-split --merge)"
        )
    for name, value in keys.items():
        if not name.startswith(f"{architecture}."):
            continue
        numbers = value if isinstance(value, list) else [value]
        limit = MAX_LAYERS if name.endswith(".block_count") else MAX_CONFIG_NUMBER
        if any(isinstance(number, int) and number > limit for number in numbers):
            raise BadGguf(f"its {name[:80]} is larger than that of any model")


def _check_ends(tensors: list[_Tensor], *, data_offset: int, alignment: Any, size: int) -> None:
    if not tensors:
        raise BadGguf("it holds no weights")
    if not isinstance(alignment, int) or not 1 <= alignment <= MAX_STRING_BYTES:
        raise BadGguf("its general.alignment is no number of bytes")
    data_offset = -(-data_offset // alignment) * alignment
    end = data_offset + max(tensor.offset + tensor.size for tensor in tensors)
    if end > size:
        raise BadGguf(f"it has {size:,} bytes of {end:,}: it is not a whole file")
