"""Lines of a text log, in strict UTF-8 and within a limit."""

import json
from collections.abc import Iterator
from typing import IO, Any

import orjson

from backend.exchange.imports.table import BadLog
from backend.http.bodies import json_size

LINE_BYTES = 4_000_000
DOCUMENT_BYTES = 50_000_000
"""A log that is one JSON document is held in memory as a whole."""
DOCUMENT_VALUES = 4_000_000
"""Maximum number of values in a document; an empty list of two bytes takes 64 bytes in memory."""


class BrokenDocument(BadLog):
    """A JSON document that ends early, or several of them in one file."""


def text_lines(file: IO[bytes]) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text with its line break). Raises BadLog if a line is not UTF-8 or too long."""
    file.seek(0)
    number = 0
    while line := file.readline(LINE_BYTES + 1):
        number += 1
        if len(line) > LINE_BYTES:
            raise BadLog(f"has a line of more than {LINE_BYTES:,} bytes: line {number}")
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise BadLog(f"is not UTF-8 text: line {number}, byte {error.start + 1}") from None


def document(file: IO[bytes]) -> Any:
    """Return the file as one JSON document; NaN and infinities are read. Raises BadLog."""
    file.seek(0)
    content = file.read(DOCUMENT_BYTES + 1)
    if len(content) > DOCUMENT_BYTES:
        raise BadLog(f"is one JSON document of more than {DOCUMENT_BYTES:,} bytes")
    if json_size(content, limit=DOCUMENT_VALUES)[0] > DOCUMENT_VALUES:
        raise BadLog(f"is one JSON document of more than {DOCUMENT_VALUES:,} values")
    try:
        return parse(content)
    except UnicodeDecodeError as error:
        raise BadLog(f"is not UTF-8 text: byte {error.start + 1}") from None
    except ValueError as error:
        if "Extra data" in str(error):
            raise BrokenDocument("holds several JSON documents") from None
        raise BrokenDocument(f"is not complete JSON ({error}): it may have been cut off") from None


def parse(text: bytes | str) -> Any:
    """JSON as Python writes it, so with NaN and infinities; raises ValueError."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError("nested too deeply") from None
