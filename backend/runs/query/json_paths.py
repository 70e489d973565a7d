"""Values within JSON columns, by path, on SQLite and Postgres alike."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Float, Text, and_, case, func, literal, or_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from backend.storage.numbers import INFINITY, MINUS_INFINITY, NAN, NOT_FINITE, SPELLINGS

SEGMENT = re.compile(r'[^"\\{},\0]{1,200}')
"""A key that both databases take in a path."""

NUMBERS = ("integer", "real", "number")
STRINGS = ("text", "string")
DOCUMENTS = ("array", "object")


class json_kind(FunctionElement[str]):  # noqa: N801 - written and read as the SQL function it is
    """The kind of the JSON value `column[path]`, as each database names it; NULL if there is none."""

    type = Text()
    inherit_cache = True


@compiles(json_kind, "sqlite")
def _sqlite_kind(element: Any, compiler: Any, **kw: Any) -> str:
    (value,) = element.clauses
    return f"json_type({compiler.process(value.left, **kw)}, {compiler.process(value.right, **kw)})"


@compiles(json_kind, "postgresql")
def _postgres_kind(element: Any, compiler: Any, **kw: Any) -> str:
    (value,) = element.clauses
    return f"json_typeof({compiler.process(value, **kw)})"


def escape_text(text: str) -> str:
    """Return a text as it is written in a stored document, in ASCII by `json_text`."""
    return json.dumps(text)[1:-1]


def _candidate_values(column: Any, path: Sequence[str]) -> list[Any]:
    """Return the value at a path, by every path that SQLite may need for it; at most one has a value.

    It takes a number for the place in a list alone, and compares keys with the text of the document.
    """
    written = [tuple(path), tuple(map(escape_text, path))]
    paths = [*map(_index_path, written), *written]
    return [column[spelling] for spelling in dict.fromkeys(paths)]


def _index_path(path: Sequence[str]) -> tuple[str | int, ...]:
    """Return the path in which every key that can be one is the place in a list."""
    return tuple(int(key) if re.fullmatch(r"\d{1,6}", key) else key for key in path)


def _first_value(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else func.coalesce(*values)


class JsonValue:
    """The value at a path of a JSON column, as each kind that it can have."""

    def __init__(self, column: Any, path: Sequence[str]) -> None:
        places = _candidate_values(column, path)
        self.kind: ColumnElement[str] = _first_value([json_kind(node) for node in places])
        self.text: ColumnElement[str] = _first_value([node.as_string() for node in places])
        self._float: ColumnElement[float] = _first_value([node.as_float() for node in places])

    @property
    def exists(self) -> ColumnElement[bool]:
        """Whether there is a value: JSON's null is none."""
        return self.kind != "null"

    @property
    def number(self) -> ColumnElement[float]:
        """The number; NULL for anything else."""
        return case((self.kind.in_(NUMBERS), self._float))

    @property
    def string(self) -> ColumnElement[str]:
        """The string; NULL for anything else."""
        return case((self.kind.in_(STRINGS), self.text))

    def contains(self, text: str) -> ColumnElement[bool]:
        """Return whether a string, or the JSON of a list or an object, contains a text, in any case of
        letters.
        """
        is_match = case((self.kind.in_((*STRINGS, *DOCUMENTS)), self.text)).icontains(text, autoescape=True)
        if text.isascii():
            return is_match
        document = case((self.kind.in_(DOCUMENTS), self.text))
        return is_match | document.icontains(escape_text(text), autoescape=True)

    def is_boolean(self, *, value: bool) -> ColumnElement[bool]:
        """Return whether it is this boolean, for which each database has its own words."""
        word = "true" if value else "false"
        return (self.kind == word) | ((self.kind == "boolean") & (self.text == word))


class SpelledValue:
    """A number of a run's summary, in which NaN and the infinities are spelled."""

    def __init__(self, column: Any, path: Sequence[str]) -> None:
        places = [
            column[spelling] for spelling in dict.fromkeys((tuple(path), tuple(map(escape_text, path))))
        ]
        self.text: ColumnElement[str] = _first_value([node.as_string() for node in places])
        self._float: ColumnElement[float] = _first_value([node.as_float() for node in places])

    def compared(
        self, operator: str, compare: Callable[[Any, Any], ColumnElement[bool]], number: float
    ) -> ColumnElement[bool]:
        """Return the condition of this relation to a finite number; twice as fast as comparing `exact`."""
        finite = and_(compare(self._float, literal(number, Float(53))), self.text.not_in(NOT_FINITE))
        if operator == "=":
            return finite
        return or_(finite, self.text == SPELLINGS[INFINITY if ">" in operator else MINUS_INFINITY])

    @property
    def exact(self) -> ColumnElement[float]:
        """The number or an infinity; NULL for NaN or no value."""
        return case(
            (self.text == SPELLINGS[NAN], None),
            (self.text == SPELLINGS[INFINITY], float("inf")),
            (self.text == SPELLINGS[MINUS_INFINITY], float("-inf")),
            else_=self._float,
        )
