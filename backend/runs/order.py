"""The sort order of lists of runs, and the queries for the next ids in that order."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Float, Row, Select, and_, case, cast, null, or_, select, union_all
from sqlalchemy.sql.elements import ColumnElement

from backend.base.errors import FieldError, InvalidRequest
from backend.runs.query.json_paths import JsonValue, SpelledValue
from backend.storage.models import Run
from backend.storage.numbers import NON_FINITE_NAMES
from backend.storage.sort_values import COLUMN_BY_METRIC, NUMBER_COLUMN_BY_PATH, TEXT_COLUMN_BY_PATH

SORTABLE: dict[str, Any] = {
    "created_at": Run.created_at,
    "queued_at": Run.queued_at,
    "started_at": Run.started_at,
    "finished_at": Run.finished_at,
    "name": Run.name,
    "status": Run.status,
    "variant": Run.variant,
    "seed": Run.seed,
    "last_step": Run.last_step,
    "priority": Run.priority,
    "verdict": Run.verdict,
    "onset": Run.onset_sick,
}

METRIC_NAME_PATTERN = re.compile(r"[\w./@:<>-]{1,128}")
CONFIG_PATH_PATTERN = re.compile(r"[\w-]+(\.[\w-]+){0,9}")
TEXT_FIELD_PATTERN = re.compile(r"(.*\.)?(preset|name|type|dtype|schedule|rule|precision|order|quantization)")
"""Pattern of config fields that contain text; all others are sorted as numbers."""


@dataclass(frozen=True, slots=True)
class RunOrder:
    """The order of a list of runs: by a column, by the last value of a metric or by a config field."""

    column: Any
    """Indexed column with the value; None if only the summary or the config contains it."""
    metric: str
    is_descending: bool
    requested_order: str = ""
    """The requested sort order, which is stored in cursors."""
    field: str = ""
    """Dotted path of the config field to sort by; empty for other orders."""

    @property
    def kind(self) -> tuple[type, ...]:
        """The types that the value in a cursor may have, which must match the type of the column."""
        if self.column is None:
            kind = str if self.field and TEXT_FIELD_PATTERN.fullmatch(self.field) else float
        else:
            kind = self.column.type.python_type
        kinds = (int, float) if kind is float else (kind,)
        return (*kinds, type(None)) if self.may_miss else kinds

    @property
    def may_miss(self) -> bool:
        """Whether a run may have no value; such runs come last."""
        return self.column is None or self.column.property.columns[0].nullable

    @property
    def is_indexed(self) -> bool:
        """Whether the value of the metric or the config field has an indexed column."""
        return self.column is not None and bool(self.metric or self.field)

    def order_by_clauses(self, key: ColumnElement[Any], run_id: Any) -> list[ColumnElement[Any]]:
        """Return the expressions for ORDER BY."""
        expressions = [key.desc(), run_id.desc()] if self.is_descending else [key.asc(), run_id.asc()]
        return [key.is_(None), *expressions] if self.may_miss else expressions


def select_in_order(
    conditions: Sequence[ColumnElement[bool]], order: RunOrder, last_key: Sequence[Any] | None, limit: int
) -> Select[Any]:
    """Return the query for the ids and sort keys of the next matching runs, after the last row of a page."""
    return (_select_by_index if order.is_indexed else _select_sorted)(conditions, order, last_key, limit)


def _select_sorted(
    conditions: Sequence[ColumnElement[bool]], order: RunOrder, last_key: Sequence[Any] | None, limit: int
) -> Select[Any]:
    """Return the query for the next runs that sorts all matching runs."""
    key, run_id, page = _sort_keys(conditions, order)
    if last_key:
        page = page.where(_after_condition(order, key, run_id, *last_key))
    return page.order_by(*order.order_by_clauses(key, run_id)).limit(limit)


def _select_by_index(
    conditions: Sequence[ColumnElement[bool]], order: RunOrder, last_key: Sequence[Any] | None, limit: int
) -> Select[Any]:
    """Return the query for the next runs that uses an index; runs without a value come last."""
    key, clauses = order.column, order.order_by_clauses(order.column, Run.id)[1:]
    last_value, last_id = last_key or (None, None)
    after_last = [] if last_id is None else [_after_row_condition(order, Run.id, last_id)]
    without_value = select(Run.id, cast(null(), key.type).label("sort_key")).where(*conditions, key.is_(None))
    if last_value is None:
        without_value = without_value.where(*after_last)
    selects = [without_value.order_by(clauses[1]).limit(limit)]
    if last_value is not None or last_id is None:
        with_value = select(Run.id, key.label("sort_key")).where(*conditions, key.is_not(None))
        if last_value is not None:
            # The first condition is a range scan of the index.
            is_beyond = key < last_value if order.is_descending else key > last_value
            at_least = key <= last_value if order.is_descending else key >= last_value
            with_value = with_value.where(at_least, or_(is_beyond, *after_last))
        selects.insert(0, with_value.order_by(*clauses).limit(limit))
    combined = union_all(*(select(*query.subquery().c) for query in selects)).subquery()
    return (
        select(combined.c.id, combined.c.sort_key)
        .order_by(*order.order_by_clauses(combined.c.sort_key, combined.c.id))
        .limit(limit)
    )


def _sort_keys(
    conditions: Sequence[ColumnElement[bool]], order: RunOrder
) -> tuple[ColumnElement[Any], Any, Select[Any]]:
    """Return the sort value, the id, and the query for both over all matching runs."""
    if order.column is not None:
        key = order.column
        return key, Run.id, select(Run.id, key.label("sort_key")).where(*conditions)
    # Each document is read once, instead of once for every use of the value in the query.
    values = select(Run.id, _json_value(order).label("value")).where(*conditions).cte("values_of_runs")
    values = values.prefix_with("MATERIALIZED")
    value: ColumnElement[Any] = values.c.value
    if order.metric:
        value = case((value.in_(NON_FINITE_NAMES), None), else_=cast(value, Float(53)))
    return value, values.c.id, select(values.c.id, value.label("sort_key"))


def _json_value(order: RunOrder) -> ColumnElement[Any]:
    """Return the last value of a metric as text, or the value of a config field."""
    if order.metric:
        return SpelledValue(Run.summary, ("last", order.metric)).text
    json_value = JsonValue(Run.config, order.field.split("."))
    return json_value.string if TEXT_FIELD_PATTERN.fullmatch(order.field) else json_value.number


def read_order(sort: str) -> RunOrder:
    """Parse a sort order such as `-created_at`, `-summary.reward/mean` or `config.optimizer.lr`."""
    name, is_descending = sort.removeprefix("-"), sort.startswith("-")
    if name in SORTABLE:
        return RunOrder(SORTABLE[name], "", is_descending, sort)
    kind, _, path = name.partition(".")
    if kind == "summary" and METRIC_NAME_PATTERN.fullmatch(path):
        return RunOrder(_column(COLUMN_BY_METRIC.get(path)), path, is_descending, sort)
    if kind == "config" and CONFIG_PATH_PATTERN.fullmatch(path):
        return RunOrder(
            _column((NUMBER_COLUMN_BY_PATH | TEXT_COLUMN_BY_PATH).get(path)), "", is_descending, sort, path
        )
    sortable_names = ", ".join((*SORTABLE, "summary.<metric>", "config.<path>"))
    reason = f"is {sort!r}; expected {sortable_names}, with - for descending"
    raise InvalidRequest([FieldError("sort", reason)])


def _column(name: str | None) -> Any:
    return None if name is None else getattr(Run, name)


def cursor_key(row: Row[Any]) -> tuple[Any, ...]:
    """Return the position of a row in the list, for the cursor."""
    return (row.sort_key, row.id)


def _after_row_condition(order: RunOrder, run_id: Any, last: str) -> ColumnElement[bool]:
    is_after: ColumnElement[bool] = run_id < last if order.is_descending else run_id > last
    return is_after


def _after_condition(
    order: RunOrder, key: ColumnElement[Any], run_id: Any, last_value: Any, last_id: str
) -> ColumnElement[bool]:
    is_after_row = _after_row_condition(order, run_id, last_id)
    if last_value is None:
        return and_(key.is_(None), is_after_row)
    is_after_key = key < last_value if order.is_descending else key > last_value
    is_after = or_(is_after_key, and_(key == last_value, is_after_row))
    return or_(key.is_(None), is_after) if order.may_miss else is_after
