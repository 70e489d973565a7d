"""Convert queries to SQL conditions with bound parameters.

A comparison with a missing value is false, and `not` inverts exactly that, so a query and its negation
together match every run. In SQL such a comparison is NULL, which is not true either.
"""

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from sqlalchemy import ColumnElement, Float, and_, exists, func, literal, or_, select, true
from sqlalchemy.orm import InstrumentedAttribute, Session

from backend.runs.query import syntax
from backend.runs.query.dates import EXPECTED_MESSAGE, read_period
from backend.runs.query.fields import Field, find_field, stored_spelling
from backend.runs.query.json_paths import JsonValue, SpelledValue
from backend.runs.query.syntax import Comparison, QueryError, Value, parse
from backend.storage.engine import is_postgres
from backend.storage.models import Experiment, Run
from backend.storage.numbers import NAME_BY_KIND, NAN

Condition = ColumnElement[bool]

NUMBER_PATTERN = re.compile(r"[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,3})?")
NONE = "none"
NOT_NUMBERS = {"nan": "NaN", "inf": "Infinity", "+inf": "Infinity", "-inf": "-Infinity"}

COMPARISON_BY_OPERATOR: dict[str, Callable[[Any, Any], Condition]] = {
    "=": lambda left, right: left == right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def make_condition(session: Session, text: str) -> Condition | None:
    """Return the SQL condition for a query, or None if it is empty; raise QueryError if it is invalid."""
    query = parse(text)
    return None if query is None else _condition(session, query)


def _condition(session: Session, query: syntax.Query) -> Condition:
    match query:
        case syntax.All(parts):
            return and_(*(_condition(session, operand) for operand in parts))
        case syntax.Any(parts):
            return or_(*(_condition(session, operand) for operand in parts))
        case syntax.Not(inner):
            return _negate(_condition(session, inner))
        case syntax.Word(text):
            return name_contains(text)
        case Comparison():
            return _comparison_condition(session, query)


def _negate(condition: Condition) -> Condition:
    return condition.is_not(true())  # SQLite's parser allows deeper nesting of IS NOT than of function calls


def name_contains(text: str) -> Condition:
    """Return the condition that the name of run, variant or experiment contains the text, ignoring case."""
    name_conditions = (column.icontains(text, autoescape=True) for column in (Run.name, Run.variant))
    return or_(*name_conditions, _experiment_condition(Experiment.name.icontains(text, autoescape=True)))


def has_tag(session: Session, condition: Callable[[ColumnElement[str]], Condition]) -> Condition:
    """Return the condition that one of the run's tags meets a condition."""
    elements = func.json_array_elements_text if is_postgres(session) else func.json_each
    tags = elements(Run.tags).table_valued("value", name="each_tag")
    return exists(select(1).select_from(tags).where(condition(tags.c.value)))


def _experiment_condition(condition: Condition) -> Condition:
    return Run.experiment_id.in_(select(Experiment.id).where(condition))


def _comparison_condition(session: Session, comparison: Comparison) -> Condition:
    field = find_field(session, comparison.name)
    operator = {"!=": "=", "!~": "~"}.get(comparison.operator, comparison.operator)
    allowed_operators = {"text": "=~", "tags": "=~", "config": "=<=>=~"}.get(field.type, "=<=>=")
    if operator not in allowed_operators:
        expected = ", ".join(
            symbol for symbol in syntax.OPERATORS if symbol.removeprefix("!") in allowed_operators
        )
        raise QueryError(f"{field.name} is compared with {expected} or in", comparison.offset)
    condition = or_(*(_relation_condition(session, field, operator, value) for value in comparison.values))
    return condition if operator == comparison.operator else _negate(condition)


def _relation_condition(session: Session, field: Field, operator: str, value: Value) -> Condition:
    """Return the condition that compares a field with a value."""
    if operator == "=" and value.text.lower() == NONE and not value.is_quoted:
        return _is_missing(session, field)
    match field.type:
        case "text":
            return _text_condition(field, operator, value)
        case "tags":
            return has_tag(session, lambda tag: _like_condition(tag, operator, value.text))
        case "number":
            return COMPARISON_BY_OPERATOR[operator](
                field.column, literal(_parse_number(field, value), Float(53))
            )
        case "date":
            return _date_condition(field, operator, value)
        case "config":
            return _config_condition(field, operator, value)
        case "metric":
            return _metric_condition(field, operator, value)


def _is_missing(session: Session, field: Field) -> Condition:
    match field.type:
        case "tags":
            return _negate(has_tag(session, lambda tag: tag.is_not(None)))
        case "config":
            return _negate(JsonValue(Run.config, field.path).exists)
        case "metric":
            return SpelledValue(Run.summary, field.path).text.is_(None)
        case "text" if field.column is None:
            return Run.experiment_id.is_(None)
        case "text":
            return func.coalesce(field.column, "") == ""
        case _:
            is_null: Condition = field.column.is_(None)
            return is_null


def _text_condition(field: Field, operator: str, value: Value) -> Condition:
    text = stored_spelling(field, value.text) if operator == "=" else value.text
    if operator == "=" and field.values and text not in field.values:
        close_matches = get_close_matches(text[:100], field.values, n=1)
        hint = (
            f"did you mean {close_matches[0]}?" if close_matches else f"{', '.join(field.values)} are known"
        )
        raise QueryError(f"there is no {field.name} {value.text[:100]!r}; {hint}", value.offset)
    if field.column is None:
        return _experiment_condition(_like_condition(Experiment.name, operator, text))
    return _like_condition(field.column, operator, text)


def _like_condition(
    column: ColumnElement[str] | InstrumentedAttribute[str], operator: str, text: str
) -> Condition:
    """Return the condition that a column equals the text, or contains it ignoring case."""
    return column == text if operator == "=" else column.icontains(text, autoescape=True)


def _parse_number(field: Field, value: Value) -> float:
    if value.is_quoted or not NUMBER_PATTERN.fullmatch(value.text):
        raise QueryError(f"{field.name} is a number; got {value.text[:100]!r}", value.offset)
    return float(value.text)


def _date_condition(field: Field, operator: str, value: Value) -> Condition:
    period = read_period(value.text)
    if period is None:
        raise QueryError(EXPECTED_MESSAGE, value.offset)
    time: ColumnElement[float] = field.column
    is_moment = period.start is period.end
    match operator:
        case "=":
            if is_moment:
                raise QueryError("a time before now is compared with <, <=, > or >=", value.offset)
            return and_(time >= period.start, time < period.end)
        case "<":
            return time < period.start
        case ">=":
            return time >= period.start
        case "<=":
            return time <= period.end if is_moment else time < period.end
        case _:
            return time > period.end if is_moment else time >= period.end


def _config_condition(field: Field, operator: str, value: Value) -> Condition:
    """Compare a config field with a number, a boolean (`true` or `false`) or else a string."""
    stored_value = JsonValue(Run.config, field.path)
    if operator == "~":
        return stored_value.contains(value.text)
    if NUMBER_PATTERN.fullmatch(value.text) and not value.is_quoted:
        return COMPARISON_BY_OPERATOR[operator](stored_value.number, literal(float(value.text), Float(53)))
    if operator != "=":
        raise QueryError(f"{operator} needs a number; got {value.text[:100]!r}", value.offset)
    if value.text in ("true", "false") and not value.is_quoted:
        return stored_value.is_boolean(value=value.text == "true")
    return stored_value.string == value.text


def _metric_condition(field: Field, operator: str, value: Value) -> Condition:
    stored_value = SpelledValue(Run.summary, field.path)
    spelling = NOT_NUMBERS.get(value.text.lower())
    if spelling is None:
        return stored_value.compared(operator, COMPARISON_BY_OPERATOR[operator], _parse_number(field, value))
    if operator == "=":
        return stored_value.text == spelling
    if spelling == NAME_BY_KIND[NAN]:
        raise QueryError("nothing is smaller or larger than NaN; use = or !=", value.offset)
    return COMPARISON_BY_OPERATOR[operator](stored_value.exact_number, literal(float(value.text), Float(53)))
