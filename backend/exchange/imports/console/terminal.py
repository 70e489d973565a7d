"""Split text like a terminal: into pieces between line breaks and carriage returns, without colors."""

import codecs
import re
from collections.abc import Iterator
from typing import IO

BLOCK_BYTES = 1 << 20
MAX_LINE_CHARACTERS = 4_000_000
"""Maximum length of a piece without a break in characters; longer ones are cut."""

_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B])")
_WRITER = re.compile(
    r"\s*(?:\((?:[\w. /-]{0,80} )?(?:pid|ip)=[^)]{0,80}\)"
    r"|\[default\d+\]:(?:\[rank ?\d+\]:?)?|\[rank ?\d+\]:?) ?"
)


def read_segments(file: IO[bytes]) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of each non-blank piece; invalid UTF-8 is replaced."""
    file.seek(0)
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    number, remainder = 1, ""
    while block := file.read(BLOCK_BYTES):
        *lines, remainder = (remainder + decoder.decode(block)).split("\n")
        for line in lines:
            yield from _split_at_returns(number, line)
            number += 1
        if len(remainder) > BLOCK_BYTES:
            complete, remainder = _split_long_line(remainder)
            yield from _split_at_returns(number, complete)
    yield from _split_at_returns(number, remainder + decoder.decode(b"", final=True))


def pieces_of_text(text: str) -> Iterator[tuple[int, str]]:
    """Yield the pieces of a text in memory."""
    for number, line in enumerate(text.split("\n"), 1):
        yield from _split_at_returns(number, line)


def _split_at_returns(number: int, line: str) -> Iterator[tuple[int, str]]:
    if "\x1b" in line:
        line = _CONTROL.sub("", line)
    for segment in line.split("\r") if "\r" in line else (line,):
        if segment and not segment.isspace():
            yield number, segment


def _split_long_line(line: str) -> tuple[str, str]:
    """Split a very long line at a carriage return or before an object, and return both parts."""
    split_offset = line.rfind("\r") + 1 or line.rfind("{")
    if split_offset > 0:
        return line[:split_offset], line[split_offset:]
    return ("", line) if len(line) <= MAX_LINE_CHARACTERS else (line, "")


def without_writer(text: str) -> tuple[str, str]:
    """Return the process that wrote a line, in the notation of Ray or torchrun, and the text after it."""
    if text.lstrip()[:1] not in "([":
        return "", text
    match = _WRITER.match(text)
    return (match[0].strip(), text[match.end() :]) if match else ("", text)
