"""Binary format of a group's completions: compressed columns with a checksum.

    1 byte     version, 1
    zstd frame of the content, with its size and its checksum (XXH64):
        one line of JSON, the columns in this order, each a list with a value for every completion:
            bytes of the text, reward, advantage, tokens, finish reason, correct, reward terms, flags, turns,
            values that are not finite
        the texts, UTF-8 one after another; lone surrogates are kept

A column is null if all its values are the default, and [value] if all are equal. The reward terms are [names,
values of the first term, ...] if all completions have the same names. Otherwise they are null, and the
documents are an additional column at the end.
"""

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise, repeat
from typing import Any, NamedTuple

import orjson
import zstandard

from backend.storage.completion import Completion

VERSION = 1
COMPRESSION_LEVEL = 9
MAX_CONTENT_BYTES = 1 << 30
"""Maximum size of a group's content, in bytes. Larger content is treated as damaged."""
MAX_TEXT_BYTES = 1 << 26
"""Maximum size of a single text (a prompt or an answer), in bytes."""

COLUMN_COUNT = 11

_local = threading.local()  # compressors must not be shared between threads


class CompletionSelection(NamedTuple):
    """The completions and columns that a reader needs. Others may be omitted."""

    texts: bool = True
    """Whether the reader needs the texts and the reward terms."""
    strings: tuple[str, ...] = ()
    """Strings that the text of each selected completion contains."""
    substring: str = ""
    """Lower-case string that the text of each selected completion contains in any letter case."""

    def may_be_in(self, content: bytes) -> bool:
        """Return whether a group's content may contain a selected completion."""
        if b"\0" in content or b"\xed" in content:  # `clean_text` changes the text that is searched
            return True
        if self.substring and content.isascii() and self.substring.encode() not in content.lower():
            return False
        return all(string.encode() in content for string in self.strings)


ALL_COMPLETIONS = CompletionSelection()


class CompletionsDamaged(ValueError):
    """The stored bytes are damaged."""


def encode(completions: Sequence[Completion]) -> bytes:
    """Encode a group's completions, which must be in the order of their positions, starting at 0.

    Raises ValueError if they are not, or if a value cannot be encoded.
    """
    if any(completion.position != index for index, completion in enumerate(completions)):
        raise ValueError("completions are packed in the order of their positions, from 0 on")
    texts = [completion.text.encode("utf-8", "surrogatepass") for completion in completions]
    terms, documents = _terms([completion.rewards for completion in completions])
    columns = [
        list(map(len, texts)),
        _column([completion.reward for completion in completions]),
        _column([completion.advantage for completion in completions]),
        _column([completion.tokens for completion in completions]),
        _column([completion.finish_reason for completion in completions]),
        _column([completion.correct for completion in completions]),
        terms,
        _drop_if_empty([list(completion.flags) for completion in completions]),
        _drop_if_empty([list(completion.turns) for completion in completions]),
        _drop_if_empty([dict(completion.non_finite or {}) for completion in completions]),
        documents,
    ]
    content = b"\n".join([_line(columns), b"".join(texts)])
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
    return bytes([VERSION]) + bytes(_local.compressor.compress(content))


def _line(columns: list[Any]) -> bytes:
    try:
        return orjson.dumps(columns)
    except orjson.JSONEncodeError:  # lone surrogates in a name
        return json.dumps(columns).encode()


def _columns(line: bytes) -> list[Any]:
    try:
        columns: list[Any] = orjson.loads(line)
    except orjson.JSONDecodeError:
        columns = json.loads(line)
    if len(columns) != COLUMN_COUNT:
        raise CompletionsDamaged(f"it has {len(columns)} columns, expected {COLUMN_COUNT}")
    return columns


def _drop_if_empty(values: list[Any]) -> list[Any] | None:
    return values if any(values) else None


def _column(values: list[Any]) -> list[Any]:
    return values[:1] if len(set(map(repr, values))) == 1 else values  # 0.0 == -0.0, 1 == True


def _terms(rewards: Sequence[Any]) -> tuple[list[Any] | None, list[Any] | None]:
    """Return the reward terms as columns, or as documents if completions have different terms."""
    term_names = [list(reward_terms) for reward_terms in rewards]
    if any(names != term_names[0] for names in term_names):
        return None, [dict(reward_terms) for reward_terms in rewards]
    columns = [
        _column([reward_terms[name] for reward_terms in rewards])
        for name in (term_names[0] if term_names else [])
    ]
    return [term_names[0] if term_names else [], *columns], None


def decode(group_id: str, data: bytes, selection: CompletionSelection = ALL_COMPLETIONS) -> list[Completion]:
    """Decode the completions of a group. Raises CompletionsDamaged if the bytes are damaged."""
    content = _content(data)
    if selection is not ALL_COMPLETIONS and not selection.may_be_in(content):
        return []
    try:
        line_end = content.index(b"\n")
        return list(_completions(group_id, content[line_end + 1 :], _columns(content[:line_end]), selection))
    except CompletionsDamaged:
        raise
    except (ValueError, TypeError, LookupError, MemoryError, RecursionError) as error:
        raise CompletionsDamaged(f"its columns cannot be read: {error}") from None


def _content(data: bytes) -> bytes:
    if data[:1] != bytes([VERSION]):
        raise CompletionsDamaged(f"its version is {data[0] if data else None}, expected {VERSION}")
    try:
        size = zstandard.frame_content_size(data[1:])
        if not 0 <= size <= MAX_CONTENT_BYTES:
            raise CompletionsDamaged(f"it declares {size} bytes")
        if not hasattr(_local, "decompressor"):
            _local.decompressor = zstandard.ZstdDecompressor()
        content: bytes = _local.decompressor.decompress(data[1:])
    except zstandard.ZstdError as error:
        raise CompletionsDamaged(str(error)) from None
    return content


def _completions(
    group_id: str, texts: bytes, columns: list[Any], want: CompletionSelection
) -> Iterator[Completion]:
    sizes, *values, terms, flags, turns, non_finite, documents = columns
    count = len(sizes)
    text_ends = list(accumulate(sizes, initial=0))
    if text_ends[-1] != len(texts):
        raise CompletionsDamaged(f"its texts have {len(texts)} bytes, expected {text_ends[-1]}")
    reward, advantage, tokens, reason, correct = (_expand_column(column, count) for column in values)
    rewards: Iterable[Any] = repeat({}, count)
    completion_texts: Iterable[str] = repeat("", count)
    if want.texts:
        rewards = documents if terms is None else _documents(terms, count)
        completion_texts = [
            texts[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(text_ends)
        ]
    position_columns = [repeat(group_id, count), range(count)]
    columns = [*position_columns, completion_texts, reward, advantage, tokens, reason, correct, rewards]
    for stored_values, default in ((flags, list), (turns, list), (non_finite, dict)):
        columns.append(stored_values or repeat(default(), count))
    return map(Completion._make, zip(*columns, strict=True))


def _expand_column(column: list[Any], count: int) -> list[Any]:
    return column * count if len(column) == 1 else column


def _documents(terms: list[Any], count: int) -> list[dict[str, Any]]:
    names, *columns = terms
    if not names:
        return [{} for _ in range(count)]
    rows = zip(*(_expand_column(column, count) for column in columns), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]
