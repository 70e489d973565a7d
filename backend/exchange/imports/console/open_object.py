"""The lines of a printed object that is not closed yet, or that only looks like one."""

import re

from backend.exchange.imports.console.literals import Incomplete, read_object

MAX_CHARACTERS, MIN_MAX_CHARACTERS = 200_000, 8_000
"""Maximum length of an object, and the length to which it is lowered if braces of a log stay open, such as
those of code in completions.
"""
_NEW_OBJECT_PATTERN = re.compile(r"\s*\{\s*['\"]")
_BEFORE_VALUES = (":", ",", "[", "(", "=")
"""Ends of a line of an object after which an object in it may begin."""


class NoObject(Exception):
    """The lines are no object: they have to be read as other text."""


class OpenObject:
    """Collects the lines of an object until it is complete."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []
        """Lines with their numbers, as they are read again if they are no object."""
        self._contents: list[str] = []
        """The same lines without the process that wrote them."""
        self._offset = self._size = self._open_braces = 0
        self._max_size = MAX_CHARACTERS

    def __bool__(self) -> bool:
        return bool(self.lines)

    def begin(self, line: int, text: str, content: str, offset: int) -> None:
        """Begin with a line whose content has an open brace at the offset."""
        self.lines, self._contents, self._offset = [(line, text)], [content], offset
        self._size = len(content)
        self._open_braces = content.count("{", offset) - content.count("}", offset)

    def add(self, line: int, text: str, content: str) -> tuple[str, int] | None:
        """Add a line; return the text of the complete object and the offset of its brace, or None.

        Raise NoObject if the lines are none. They are parsed when all braces are closed, and after 2, 4, 8
        lines and so on, because the metrics below a lone brace must not be taken for a part of its object.
        """
        is_new = _NEW_OBJECT_PATTERN.match(content) is not None
        is_value = self._contents[-1].rstrip().endswith(_BEFORE_VALUES)
        self.lines.append((line, text))
        self._contents.append(content)
        if is_new and not is_value:
            raise NoObject
        self._size += len(content)
        self._open_braces += content.count("{") - content.count("}")
        count, is_long = len(self.lines), self._size > self._max_size
        if self._open_braces > 0 and count & (count - 1) and not is_long:
            return None
        object_text = "\n".join(self._contents)
        try:
            self._check(object_text)
        except Incomplete:
            return None
        except ValueError:
            object_text = "".join(self._contents)  # a terminal may have broken a number or a word
            try:
                self._check(object_text)
            except Incomplete:
                return None
            except ValueError:
                raise NoObject from None
        return object_text, self._offset

    def _check(self, object_text: str) -> None:
        """Raise Incomplete or ValueError unless the text contains the complete object."""
        try:
            read_object(object_text, self._offset, is_last=False)
        except Incomplete:
            if self._size > self._max_size:
                self._max_size = max(MIN_MAX_CHARACTERS, self._max_size // 4)
                raise NoObject from None
            raise

    def take_lines(self) -> list[tuple[int, str]]:
        """Return all lines, and forget them."""
        lines, self.lines, self._contents = self.lines, [], []
        return lines
