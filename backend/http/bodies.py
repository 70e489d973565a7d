"""JSON bodies of requests, which are admitted, decompressed, measured and parsed once, in a thread.

A few kB of gzip can contain millions of JSON values, each of which needs about fifty bytes of memory. Values
and levels are therefore counted in the bytes before the body is parsed.
"""

import asyncio
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NoReturn

import numpy as np
from starlette.exceptions import HTTPException

from backend.http.limits import MAX_PUSH_BYTES, too_large

NO_DOCUMENT = object()
"""Placeholder for the document of a request without a body."""
LARGE_BYTES = 100_000
"""Size in bytes above which a body, compressed or not, has to wait for admission."""
ROLE_BYTES = 4 * MAX_PUSH_BYTES
"""Maximum total size of the unparsed bodies of one role, as received, in bytes; more large ones are refused.
"""
WRITER_BYTES = 2 * MAX_PUSH_BYTES
"""Maximum total size of the unparsed bodies of one writer, as received, in bytes."""
MAX_LARGE = 2
"""Number of large bodies of one role that are processed at a time; a writer may have one."""
MAX_WAIT_SECONDS = 10.0
"""Maximum number of seconds that a large body waits."""
MAX_JSON_VALUES = 250_000
"""Maximum number of texts, numbers, lists and objects in a body."""
MAX_JSON_LEVELS = 800
"""Maximum nesting of lists and objects; Python's recursive parser fails at about 970 levels."""

BLOCK_BYTES = 1 << 20

QUOTE, COMMA, LIST, OBJECT = b'",[{'
LIST_END, OBJECT_END = b"]}"


class LargeBodies:
    """Admits a few large bodies at a time, because all requests share memory and the interpreter."""

    def __init__(self) -> None:
        self._bytes_of_role: Counter[str] = Counter()
        self._bytes_of_writer: Counter[str] = Counter()
        self._of_role: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MAX_LARGE))
        self._of_writer: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(1))

    @contextmanager
    def count_bytes(self, role: str, writer: str) -> Iterator[Callable[[int], None]]:
        """Count the bytes of a body until the `with` block ends; raise HTTPException (429) if there are too
        many.
        """
        size = 0

        def count(arrived_bytes: int) -> None:
            nonlocal size
            size += arrived_bytes
            self._bytes_of_role[role] += arrived_bytes
            self._bytes_of_writer[writer] += arrived_bytes
            writer_bytes = self._bytes_of_writer[writer] if writer else 0
            is_too_much = self._bytes_of_role[role] > ROLE_BYTES or writer_bytes > WRITER_BYTES
            if size > LARGE_BYTES and is_too_much:
                raise _too_many()

        try:
            yield count
        finally:
            self._bytes_of_role[role] -= size
            self._bytes_of_writer[writer] -= size

    @asynccontextmanager
    async def wait_for_turn(self, role: str, writer: str) -> AsyncIterator[None]:
        """Wait for a turn and hold it; raise HTTPException (429) if there is none within MAX_WAIT_SECONDS."""
        turns = [self._of_writer[writer]] if writer else []
        turns.append(self._of_role[role])
        acquired_turns: list[asyncio.Semaphore] = []
        try:
            await _acquire_turns(turns, acquired_turns)
            yield
        finally:
            for turn in acquired_turns:
                turn.release()


async def _acquire_turns(turns: list[asyncio.Semaphore], acquired_turns: list[asyncio.Semaphore]) -> None:
    try:
        async with asyncio.timeout(MAX_WAIT_SECONDS):
            for turn in turns:
                await turn.acquire()
                acquired_turns.append(turn)
    except TimeoutError:
        raise _too_many() from None


def _too_many() -> HTTPException:
    reason = "too many large bodies at once: send this one again in a moment; it was not carried out"
    return HTTPException(429, reason, headers={"Retry-After": f"{MAX_WAIT_SECONDS:.0f}"})


def is_large(body: bytes, encoding: str = "") -> bool:
    """Return whether a body is large, before or after decompression, whose size zlib verifies later."""
    unpacked_size = int.from_bytes(body[-4:], "little") if encoding == "gzip" else 0
    return max(len(body), unpacked_size) > LARGE_BYTES


def parse_body(body: bytes, encoding: str = "") -> Any:
    """Return the document of a body that may be compressed; raise HTTPException (400, 413, 415) if it is
    invalid.

    NaN and infinities are accepted here, because the body's model refuses them with the path of their field.
    """
    if encoding not in ("", "identity", "gzip"):
        raise HTTPException(415, "expected Content-Encoding: gzip or none")
    content = _decompress(body) if encoding == "gzip" else body
    _check_size(content)
    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=refuse_duplicates)
    except UnicodeDecodeError:
        _refuse("is not UTF-8")
    except ValueError as error:
        _refuse(str(error))


def _decompress(body: bytes) -> bytes:
    size = min(MAX_PUSH_BYTES, int.from_bytes(body[-4:], "little"))
    decompressor = zlib.decompressobj(wbits=31)
    try:
        content = decompressor.decompress(body, size + 1)
    except zlib.error:
        raise HTTPException(400, "the body is not the gzip that its header promises") from None
    if len(content) > MAX_PUSH_BYTES:
        raise HTTPException(413, too_large(MAX_PUSH_BYTES))
    if not decompressor.eof or decompressor.unused_data:
        raise HTTPException(400, "the body is not one complete gzip stream")
    return content


def _check_size(content: bytes) -> None:
    """Raise HTTPException (413 or 400) if there are too many values or levels to parse."""
    values, levels = json_size(content)
    if values > MAX_JSON_VALUES:
        reason = f"the body holds more than {MAX_JSON_VALUES:,} JSON values: send less at once"
        raise HTTPException(413, reason)
    if levels > MAX_JSON_LEVELS:
        _refuse(f"is nested too deeply: at most {MAX_JSON_LEVELS} levels are accepted")


def json_size(content: bytes, *, limit: int = MAX_JSON_VALUES) -> tuple[int, int]:
    """Return the numbers of values and levels of JSON without parsing it; never too low up to the first
    error.

    Every value except the outermost follows a comma or the start of its list or object; an empty list or
    object counts twice. Counting stops after `limit` values. Unlike a loop or `re`, NumPy lets other threads
    run in the meantime.
    """
    unescaped_content = content.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in content else content
    characters, values, level, max_level, is_inside = (
        np.frombuffer(unescaped_content, np.uint8),
        1,
        0,
        0,
        np.False_,
    )
    for start in range(0, len(characters), BLOCK_BYTES):
        block = characters[start : start + BLOCK_BYTES]
        inside = np.logical_xor.accumulate(block == QUOTE) ^ is_inside
        container_starts = ~inside & ((block == LIST) | (block == OBJECT))
        container_ends = ~inside & ((block == LIST_END) | (block == OBJECT_END))
        values += int(np.count_nonzero(container_starts) + np.count_nonzero(~inside & (block == COMMA)))
        levels = level + np.cumsum(
            container_starts.view(np.int8) - container_ends.view(np.int8), dtype=np.int32
        )
        max_level, level, is_inside = max(max_level, int(levels.max())), int(levels[-1]), inside[-1]
        if values > limit:
            break
    return values, max_level


def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object for `object_pairs_hook`; raise ValueError for duplicate names, which are ambiguous."""
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("names a field twice")
    return document


def _refuse(reason: str) -> NoReturn:
    raise HTTPException(400, f"the body is not valid JSON: {reason}")
