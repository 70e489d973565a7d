"""Parse Python literals without an evaluator: lists, tuples, strings and numbers.

The result is the same as that of `eval`. Everything else (names, calls, operators, comprehensions, sets,
prefixed strings) is rejected.
"""

import re
from typing import Any

MAX_CHARS = 20_000
MAX_DEPTH = 20
MAX_DIGITS = 300

_TOKEN = re.compile(
    r"""[ \t\f]*(?:
        (?P<number>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]{1,3})?(?![\w.]))
        |(?P<name>None|True|False)(?!\w)
        |(?P<text>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
        |(?P<sign>[\[\](),+-])
        |(?P<line>\r?\n)
        |(?P<end>\Z))""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_NAMES = {"None": None, "True": True, "False": False}
_CLOSING = {"[": "]", "(": ")"}
_LEADING_ZERO = re.compile(r"0+[1-9][0-9]*")


class NotLiteral(ValueError):
    """Raised for text that is not a literal or exceeds the limits."""


def read_literal(text: str) -> Any:
    """Return the value that a text denotes. Raise NotLiteral for anything else."""
    if len(text) > MAX_CHARS:
        raise NotLiteral(f"longer than {MAX_CHARS} characters")
    values, has_comma = _elements(_Tokens(text.strip()), end="", depth=0)
    if not values:
        raise NotLiteral("empty")
    return tuple(values) if has_comma else values[0]


class _Tokens:
    """The tokens of a text in order, with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self._text, self._offset, self._open_brackets = text, 0, 0
        self.kind = self.word = ""
        self.advance()

    def advance(self) -> str:
        """Advance to the next token and return the previous word. Line breaks are allowed only in
        brackets.
        """
        previous, self.kind = self.word, "line"
        while self.kind == "line":
            match = _TOKEN.match(self._text, self._offset)
            if match is None or (match.lastgroup == "line" and not self._open_brackets):
                raise NotLiteral(f"unexpected text at character {self._offset}")
            self._offset, self.kind = match.end(), match.lastgroup or ""
            self.word = match[self.kind]
        if self.kind == "sign":
            self._open_brackets += (self.word in "[(") - (self.word in "])")
        return previous

    def is_at(self, symbol: str) -> bool:
        """Return whether this sign comes next. "" stands for the end of the text."""
        return self.word == symbol and self.kind != "text"


def _elements(tokens: _Tokens, *, end: str, depth: int) -> tuple[list[Any], bool]:
    """Return the values up to `end`, and whether there is a comma among or after them."""
    if depth > MAX_DEPTH:
        raise NotLiteral(f"nested more than {MAX_DEPTH} deep")
    values: list[Any] = []
    has_comma = False
    while not tokens.is_at(end):
        if values and not has_comma:
            raise NotLiteral("expected a comma")
        values.append(_value(tokens, depth))
        has_comma = tokens.is_at(",")
        if has_comma:
            tokens.advance()
    return values, has_comma or len(values) > 1


def _value(tokens: _Tokens, depth: int) -> Any:
    kind, word = tokens.kind, tokens.advance()
    if kind == "number":
        return _number(word)
    if kind == "name":
        return _NAMES[word]
    if kind == "text":
        return _string(word, tokens)
    if word in _CLOSING:
        return _parse_brackets(tokens, word, depth)
    if word in ("+", "-") and tokens.kind == "number":
        number = _number(tokens.advance())
        return -number if word == "-" else number
    raise NotLiteral(f"unexpected {word or 'end'!r}")


def _parse_brackets(tokens: _Tokens, opening: str, depth: int) -> Any:
    values, has_comma = _elements(tokens, end=_CLOSING[opening], depth=depth + 1)
    tokens.advance()
    if opening == "[":
        return values
    return tuple(values) if has_comma or not values else values[0]


def _string(word: str, tokens: _Tokens) -> str:
    text = _unescape(word[1:-1])
    while tokens.kind == "text":  # adjacent strings are one string
        text += _unescape(tokens.advance()[1:-1])
    return text


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: _escaped_character(match[1]), text)


def _escaped_character(letter: str) -> str:
    if letter not in _ESCAPED:
        raise NotLiteral(f"unknown escape {letter!r}")
    return _ESCAPED[letter]


def _number(word: str) -> int | float:
    if len(word) > MAX_DIGITS:
        raise NotLiteral(f"a number of more than {MAX_DIGITS} digits")
    if not word.isdecimal():
        return float(word)
    if _LEADING_ZERO.fullmatch(word):
        raise NotLiteral("a leading zero")
    return int(word)
