"""Parse objects in text that Python or JSON has printed, token by token, without evaluating anything."""

import re
from typing import Any

import orjson

MAX_DEPTH = 6
MAX_TOKENS = 20_000

_TOKEN_PATTERN = re.compile(
    r"""\s*(?:
      (?P<text>'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")
    | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
    | (?P<word>[-+]?[A-Za-z_][\w.]*|<\w{1,60}Backward\w{0,9}>)
    | (?P<sign>[{}\[\]():,=])
    )""",
    re.VERBOSE | re.DOTALL,
)
_WORDS: dict[str, Any] = {
    "None": None,
    "null": None,
    "True": True,
    "true": True,
    "False": False,
    "false": False,
    "nan": float("nan"),
    "NaN": float("nan"),
    "inf": float("inf"),
    "-inf": float("-inf"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_CLOSING = {"{": "}", "[": "]", "(": ")"}


class Incomplete(ValueError):
    """The text ends within the object."""


def read_object(text: str, offset: int, *, is_last: bool) -> tuple[dict[str, Any], int]:
    """Return the object whose brace is at the offset `offset`, and the offset after it.

    Raise Incomplete if the text ends within it, and ValueError if it is not an object. For a call such as
    `tensor(0.5, device='cpu')`, the first argument is used. `is_last` means that no other brace follows.
    """
    object_text = text[offset:].rstrip() if is_last else ""
    if object_text.endswith("}") and '"' not in object_text and "\\" not in object_text:
        try:  # most objects are plain, for which this is twenty times as fast
            document = orjson.loads(object_text.replace("'", '"'))
        except orjson.JSONDecodeError:
            pass
        else:
            return document, len(text)
    value, end = _Scanner(text, offset).value(0)
    if not isinstance(value, dict):
        raise ValueError("is no object")  # noqa: TRY004 - like other invalid text
    return value, end


class _Scanner:
    def __init__(self, text: str, offset: int) -> None:
        self._text = text
        self._offset = offset
        self._remaining_tokens = MAX_TOKENS

    def value(self, depth: int) -> tuple[Any, int]:
        kind, lexeme = self._next()
        return self._value(kind, lexeme, depth), self._offset

    def _next(self) -> tuple[str, str]:
        match = _TOKEN_PATTERN.match(self._text, self._offset)
        self._remaining_tokens -= 1
        if match is None:
            remaining_text = self._text[self._offset : self._offset + 200].lstrip()
            raise (
                Incomplete
                if not remaining_text or remaining_text[0] in "'\""
                else ValueError("is no literal")
            )
        if self._remaining_tokens < 0:
            raise ValueError("is too large")
        self._offset = match.end()
        kind = str(match.lastgroup)
        return kind, match[kind]

    def _peek(self) -> str:
        match = _TOKEN_PATTERN.match(self._text, self._offset)
        return match["sign"] or "" if match else ""

    def _value(self, kind: str, lexeme: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError("is nested too deeply")
        if kind == "text":
            return lexeme[1:-1].replace("\n", "")  # a terminal may have broken the line
        if kind == "number":
            return float(lexeme) if not lexeme.lstrip("+-").isdigit() else _parse_integer(lexeme)
        if kind == "word":
            if self._peek() != "(":
                return _WORDS.get(lexeme, lexeme)
            self._next()
            arguments = self._items("(", depth + 1)
            return arguments[0] if arguments else lexeme
        if lexeme == "{":
            return self._object(depth + 1)
        if lexeme in _CLOSING:
            return self._items(lexeme, depth + 1)
        raise ValueError("is no literal")

    def _object(self, depth: int) -> dict[str, Any]:
        document: dict[str, Any] = {}
        while True:
            kind, lexeme = self._next()
            if lexeme == "}":
                return document
            key = self._value(kind, lexeme, depth)
            if self._next()[1] != ":":
                raise ValueError("is no object")
            kind, lexeme = self._next()
            document[str(key)] = self._value(kind, lexeme, depth)
            if (lexeme := self._next()[1]) == "}":
                return document
            if lexeme != ",":
                raise ValueError("is no object")

    def _items(self, opening: str, depth: int) -> list[Any]:
        items: list[Any] = []
        while True:
            kind, lexeme = self._next()
            if lexeme == _CLOSING[opening]:
                return items
            if lexeme in {",", "="}:
                continue
            items.append(self._value(kind, lexeme, depth))


def _parse_integer(digits: str) -> int | float:
    return int(digits) if len(digits) < 20 else float(digits)
