"""Values within JSON columns, by path, on SQLite and Postgres alike."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Float, Text, and_, case, literal, or_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from backend.db.numbers import INFINITY, MINUS_INFINITY, NAN, NOT_FINITE, SPELLINGS

SEGMENT = re.compile(r'[^"\\{},\0]{1,200}')
"""A key that both databases take in a path."""

NUMBERS = ("integer", "real", "number")
STRINGS = ("text", "string")


class json_kind(FunctionElement[str]):  # noqa: N801 - written and read as the SQL function it is
    """The kind of the JSON value `column[path]`, in the words of each database; NULL where there is none."""

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


class JsonValue:
    """The value at a path of a JSON column, as each kind that it can have."""

    def __init__(self, column: Any, path: Sequence[str]) -> None:
        value = column[tuple(int(key) if re.fullmatch(r"\d{1,6}", key) else key for key in path)]
        self.kind: ColumnElement[str] = json_kind(value)
        self.text: ColumnElement[str] = value.as_string()
        self._float: ColumnElement[float] = value.as_float()

    @property
    def is_there(self) -> ColumnElement[bool]:
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

    @property
    def document(self) -> ColumnElement[str]:
        """A string, or the JSON of a list or an object; NULL for anything else."""
        return case((self.kind.in_((*STRINGS, "array", "object")), self.text))

    def is_boolean(self, *, value: bool) -> ColumnElement[bool]:
        """Whether it is this boolean, for which each database has its own words."""
        word = "true" if value else "false"
        return (self.kind == word) | ((self.kind == "boolean") & (self.text == word))


class SpelledValue:
    """A number of a run's summary, in which NaN and the infinities are spelled."""

    def __init__(self, column: Any, path: Sequence[str]) -> None:
        value = column[tuple(path)]
        self.text: ColumnElement[str] = value.as_string()
        self._float: ColumnElement[float] = value.as_float()

    def compared(
        self, operator: str, compare: Callable[[Any, Any], ColumnElement[bool]], number: float
    ) -> ColumnElement[bool]:
        """Whether it stands in this relation to a finite number; twice as fast as comparing `exact`."""
        finite = and_(compare(self._float, literal(number, Float(53))), self.text.not_in(NOT_FINITE))
        if operator == "=":
            return finite
        return or_(finite, self.text == SPELLINGS[INFINITY if ">" in operator else MINUS_INFINITY])

    @property
    def exact(self) -> ColumnElement[float]:
        """The number or an infinity; NULL for NaN and where there is none."""
        return case(
            (self.text == SPELLINGS[NAN], None),
            (self.text == SPELLINGS[INFINITY], float("inf")),
            (self.text == SPELLINGS[MINUS_INFINITY], float("-inf")),
            else_=self._float,
        )
