"""Read the lines of a UTF-8 text log, with size limits."""

import json
from collections.abc import Iterator
from typing import IO, Any

import orjson

from backend.exchange.imports.table import BadLog
from backend.http.bodies import json_size

MAX_LINE_BYTES = 4_000_000
MAX_DOCUMENT_BYTES = 50_000_000
"""Maximum size of a log that is a single JSON document, which is read into memory, in bytes."""
MAX_DOCUMENT_VALUES = 4_000_000
"""Maximum number of values in a document; an empty list of two bytes takes 64 bytes in memory."""


class BrokenDocument(BadLog):
    """A JSON document that ends early, or several of them in one file."""


class NotUtf8(BadLog):
    """A text that is not UTF-8; `may_be_western` if everything before its first other byte is ASCII."""

    def __init__(self, position: str, *, may_be_western: bool) -> None:
        super().__init__(f"is not UTF-8 text: {position}")
        self.may_be_western = may_be_western


def text_lines(file: IO[bytes]) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text with line break); raise NotUtf8, or BadLog if a line is too long."""
    file.seek(0)
    number, is_ascii = 0, True
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise BadLog(f"has a line of more than {MAX_LINE_BYTES:,} bytes: line {number}")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise NotUtf8(
                f"line {number}, byte {error.start + 1}",
                may_be_western=is_ascii and line[: error.start].isascii(),
            ) from None
        is_ascii = is_ascii and line.isascii()
        yield number, text


def document(file: IO[bytes]) -> Any:
    """Return the file as one JSON document, which may contain NaN and infinities; raise BadLog."""
    file.seek(0)
    content = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(content) > MAX_DOCUMENT_BYTES:
        raise BadLog(f"is one JSON document of more than {MAX_DOCUMENT_BYTES:,} bytes")
    if json_size(content, limit=MAX_DOCUMENT_VALUES)[0] > MAX_DOCUMENT_VALUES:
        raise BadLog(f"is one JSON document of more than {MAX_DOCUMENT_VALUES:,} values")
    try:
        return parse(content)
    except UnicodeDecodeError as error:
        may_be_western = content[: error.start].isascii()
        raise NotUtf8(f"byte {error.start + 1}", may_be_western=may_be_western) from None
    except ValueError as error:
        if "Extra data" in str(error):
            raise BrokenDocument("holds several JSON documents") from None
        raise BrokenDocument(f"is not complete JSON ({error}): it may have been cut off") from None


def parse(text: bytes | str) -> Any:
    """Parse JSON in Python's dialect, with NaN and infinities; raise ValueError if it is invalid."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError("nested too deeply") from None
