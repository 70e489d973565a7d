"""Objects in text, as Python or JSON writes them. They are scanned token by token; nothing is evaluated."""

import re
from typing import Any

import orjson

MAX_DEPTH = 6
MAX_TOKENS = 20_000

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")
    | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
    | (?P<word>[-+]?[A-Za-z_][\w.]*)
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


def read_object(text: str, at: int) -> tuple[dict[str, Any], int]:
    """(object, place behind it) of the object whose brace is at `at`.

    Raises Incomplete where the text ends within it, ValueError where it is none. Of a call such as
    `tensor(0.5, device='cpu')` the first argument counts.
    """
    whole = text[at:].rstrip()
    if whole.endswith("}") and '"' not in whole and "\\" not in whole:
        try:  # what trainers print is nearly always plain: twenty times as fast as token by token
            document = orjson.loads(whole.replace("'", '"'))
        except orjson.JSONDecodeError:
            pass
        else:
            return document, len(text)
    value, end = _Scanner(text, at).value(0)
    if not isinstance(value, dict):
        raise ValueError("is no object")
    return value, end


class _Scanner:
    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._at = at
        self._left = MAX_TOKENS

    def value(self, depth: int) -> tuple[Any, int]:
        kind, token = self._next()
        return self._value(kind, token, depth), self._at

    def _next(self) -> tuple[str, str]:
        match = _TOKEN.match(self._text, self._at)
        self._left -= 1
        if match is None:
            rest = self._text[self._at :].lstrip()
            raise Incomplete if not rest or rest[0] in "'\"" else ValueError("is no literal")
        if self._left < 0:
            raise ValueError("is too large")
        self._at = match.end()
        kind = str(match.lastgroup)
        return kind, match[kind]

    def _peek(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        return match["sign"] or "" if match else ""

    def _value(self, kind: str, token: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError("is nested too deeply")
        if kind == "text":
            return token[1:-1]
        if kind == "number":
            return float(token) if not token.lstrip("+-").isdigit() else _whole(token)
        if kind == "word":
            if self._peek() != "(":
                return _WORDS.get(token, token)
            self._next()
            arguments = self._items("(", depth + 1)
            return arguments[0] if arguments else token
        if token == "{":
            return self._object(depth + 1)
        if token in _CLOSING:
            return self._items(token, depth + 1)
        raise ValueError("is no literal")

    def _object(self, depth: int) -> dict[str, Any]:
        document: dict[str, Any] = {}
        while True:
            kind, token = self._next()
            if token == "}":
                return document
            key = self._value(kind, token, depth)
            if self._next()[1] != ":":
                raise ValueError("is no object")
            kind, token = self._next()
            document[str(key)] = self._value(kind, token, depth)
            if (token := self._next()[1]) == "}":
                return document
            if token != ",":
                raise ValueError("is no object")

    def _items(self, opening: str, depth: int) -> list[Any]:
        items: list[Any] = []
        while True:
            kind, token = self._next()
            if token == _CLOSING[opening]:
                return items
            if token in {",", "="}:
                continue
            items.append(self._value(kind, token, depth))


def _whole(token: str) -> int | float:
    return int(token) if len(token) < 20 else float(token)
