"""Read values in JSON columns by path, on SQLite and Postgres."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Float, Text, and_, case, func, literal, or_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from backend.storage.numbers import INFINITY, MINUS_INFINITY, NAME_BY_KIND, NAN, NON_FINITE_NAMES

SEGMENT_PATTERN = re.compile(r'[^"\\{},\0]{1,200}')
"""Pattern of a key that both databases accept in a path."""

NUMBER_KINDS = ("integer", "real", "number")
STRING_KINDS = ("text", "string")
DOCUMENT_KINDS = ("array", "object")


class json_kind(FunctionElement[str]):  # noqa: N801 - named like the SQL function that it renders
    """The type of the JSON value `column[path]`, as the database names it; NULL if there is no value."""

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
    """Return a text as it is escaped in stored documents, which `json_text` writes as ASCII."""
    return json.dumps(text)[1:-1]


def _candidate_values(column: Any, path: Sequence[str]) -> list[Any]:
    """Return the expressions for each spelling of the path; at most one of them has a value.

    SQLite accepts only a number as a list index, and compares keys with the escaped text of the document.
    """
    spellings = [tuple(path), tuple(map(escape_text, path))]
    paths = [*map(_index_path, spellings), *spellings]
    return [column[spelling] for spelling in dict.fromkeys(paths)]


def _index_path(path: Sequence[str]) -> tuple[str | int, ...]:
    """Return the path with all numeric keys converted to list indexes."""
    return tuple(int(key) if re.fullmatch(r"\d{1,6}", key) else key for key in path)


def _first_value(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else func.coalesce(*values)


class JsonValue:
    """The value at a path of a JSON column, as an expression for each of its possible types."""

    def __init__(self, column: Any, path: Sequence[str]) -> None:
        candidates = _candidate_values(column, path)
        self.kind: ColumnElement[str] = _first_value([json_kind(node) for node in candidates])
        self.text: ColumnElement[str] = _first_value([node.as_string() for node in candidates])
        self._float: ColumnElement[float] = _first_value([node.as_float() for node in candidates])

    @property
    def exists(self) -> ColumnElement[bool]:
        """Whether there is a value other than null."""
        return self.kind != "null"

    @property
    def number(self) -> ColumnElement[float]:
        """The number, or NULL for other types."""
        return case((self.kind.in_(NUMBER_KINDS), self._float))

    @property
    def string(self) -> ColumnElement[str]:
        """The string, or NULL for other types."""
        return case((self.kind.in_(STRING_KINDS), self.text))

    def contains(self, text: str) -> ColumnElement[bool]:
        """Return the condition that a string, or the JSON of a list or object, contains a text, ignoring
        case.
        """
        is_match = case((self.kind.in_((*STRING_KINDS, *DOCUMENT_KINDS)), self.text)).icontains(
            text, autoescape=True
        )
        if text.isascii():
            return is_match
        document = case((self.kind.in_(DOCUMENT_KINDS), self.text))
        return is_match | document.icontains(escape_text(text), autoescape=True)

    def is_boolean(self, *, value: bool) -> ColumnElement[bool]:
        """Return the condition that the value equals this boolean, which each database represents
        differently.
        """
        literal = "true" if value else "false"
        return (self.kind == literal) | ((self.kind == "boolean") & (self.text == literal))


class SpelledValue:
    """A number in the summary of a run, in which NaN and the infinities are stored as strings."""

    def __init__(self, column: Any, path: Sequence[str]) -> None:
        candidates = [
            column[spelling] for spelling in dict.fromkeys((tuple(path), tuple(map(escape_text, path))))
        ]
        self.text: ColumnElement[str] = _first_value([node.as_string() for node in candidates])
        self._float: ColumnElement[float] = _first_value([node.as_float() for node in candidates])

    def compared(
        self, operator: str, compare: Callable[[Any, Any], ColumnElement[bool]], number: float
    ) -> ColumnElement[bool]:
        """Return the condition that compares the value with a finite number; twice as fast as comparing
        `exact`.
        """
        finite_condition = and_(
            compare(self._float, literal(number, Float(53))), self.text.not_in(NON_FINITE_NAMES)
        )
        if operator == "=":
            return finite_condition
        return or_(
            finite_condition, self.text == NAME_BY_KIND[INFINITY if ">" in operator else MINUS_INFINITY]
        )

    @property
    def exact_number(self) -> ColumnElement[float]:
        """The number or an infinity; NULL for NaN or a missing value."""
        return case(
            (self.text == NAME_BY_KIND[NAN], None),
            (self.text == NAME_BY_KIND[INFINITY], float("inf")),
            (self.text == NAME_BY_KIND[MINUS_INFINITY], float("-inf")),
            else_=self._float,
        )
