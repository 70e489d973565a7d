"""Text as a terminal shows it: pieces between line breaks and carriage returns, without colours."""

import codecs
import re
from collections.abc import Iterator
from typing import IO

BLOCK_BYTES = 1 << 20
LONGEST = 4_000_000
"""Characters of a piece without any break; a longer one is cut."""

_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B])")
_WRITER = re.compile(
    r"\s*(?:\((?:[\w. /-]{0,80} )?(?:pid|ip)=[^)]{0,80}\)|\[(?:default\d+\]:\[)?rank ?\d+\]:?) ?"
)


def pieces(file: IO[bytes]) -> Iterator[tuple[int, str]]:
    """(line from 1, text) of each piece that is not blank; bytes that are not UTF-8 are replaced."""
    file.seek(0)
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    number, rest = 1, ""
    while block := file.read(BLOCK_BYTES):
        *lines, rest = (rest + decoder.decode(block)).split("\n")
        for line in lines:
            yield from _pieces_of(number, line)
            number += 1
        if len(rest) > BLOCK_BYTES:
            done, rest = _cut(rest)
            yield from _pieces_of(number, done)
    yield from _pieces_of(number, rest + decoder.decode(b"", final=True))


def pieces_of_text(text: str) -> Iterator[tuple[int, str]]:
    """The pieces of a text in memory."""
    for number, line in enumerate(text.split("\n"), 1):
        yield from _pieces_of(number, line)


def _pieces_of(number: int, line: str) -> Iterator[tuple[int, str]]:
    if "\x1b" in line:
        line = _CONTROL.sub("", line)
    for piece in line.split("\r") if "\r" in line else (line,):
        if piece and not piece.isspace():
            yield number, piece


def _cut(line: str) -> tuple[str, str]:
    """(what of an endless line can be read now, its rest): cut at a carriage return or before an object."""
    at = line.rfind("\r") + 1 or line.rfind("{")
    if at > 0:
        return line[:at], line[at:]
    return ("", line) if len(line) <= LONGEST else (line, "")


def without_writer(text: str) -> tuple[str, str]:
    """(process that wrote a piece as Ray or torchrun names it, the text behind that name)."""
    if text.lstrip()[:1] not in "([":
        return "", text
    match = _WRITER.match(text)
    return (match[0].strip(), text[match.end() :]) if match else ("", text)
