"""The list of runs: filters, sorting and pages that stay put while runs are added."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Float, Row, Select, Text, and_, case, cast, func, or_, select
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from backend.db.models import Experiment, Run
from backend.db.numbers import NOT_FINITE
from backend.errors import FieldError, InvalidRequest
from backend.http.paging import read_cursor
from backend.metrics.known import must_be_known
from backend.runs.query.conditions import condition_of, tagged

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

MOST_IDS = 100_000
"""Of one answer."""

METRIC_NAME = re.compile(r"[\w./@:<>-]{1,128}")

COLUMNS = (
    Run.id,
    Run.name,
    Run.experiment_id,
    Experiment.name.label("experiment_name"),
    Run.variant,
    Run.seed,
    Run.config_hash,
    Run.status,
    Run.reason,
    Run.wish,
    Run.priority,
    Run.archived_at,
    Run.deleted_at,
    Run.steps,
    Run.last_step,
    # As text: it is passed on as it is, and parsing it costs more than all else.
    cast(Run.summary, Text).label("summary"),
    Run.tags,
    Run.notes,
    Run.colour,
    Run.parent_run,
    Run.fork_step,
    Run.origin,
    Run.origin_file,
    Run.writer,
    Run.progress_at,
    Run.verdict,
    Run.onset_healthy,
    Run.onset_sick,
    Run.cause,
    Run.judged_step,
    Run.check_hash,
    Run.created_at,
    Run.queued_at,
    Run.started_at,
    Run.finished_at,
    Run.changed_at,
)


@dataclass(frozen=True, slots=True)
class RunFilter:
    """The filter of a list of runs."""

    status: Sequence[str] = ()
    verdict: Sequence[str] = ()
    experiment: str = ""
    variant: str = ""
    tag: str = ""
    query: str = ""
    """As runs/query/syntax.py reads it."""
    archived: bool = False
    deleted: bool = False
    ids: Sequence[str] = ()
    """Only these, wherever they lie: archived and trashed runs too."""


@dataclass(frozen=True, slots=True)
class RunOrder:
    """The order of a list of runs: by a column or, if it is not empty, by a metric's last value."""

    column: Any
    metric: str
    is_descending: bool
    word: str = ""
    """What was asked for; cursors carry it."""

    @property
    def kind(self) -> tuple[type, ...]:
        """The types that a cursor's value may have: those that the column can be compared with."""
        kind = float if self.metric else self.column.type.python_type
        kinds = (int, float) if kind is float else (kind,)
        return (*kinds, type(None)) if self.may_miss else kinds

    @property
    def may_miss(self) -> bool:
        """Whether a run may lack the value: it comes last then; an index serves only where none does."""
        return bool(self.metric) or self.column.property.columns[0].nullable

    def ways(self, key: ColumnElement[Any], run_id: Any) -> list[ColumnElement[Any]]:
        """The expressions of ORDER BY."""
        ways = [key.desc(), run_id.desc()] if self.is_descending else [key.asc(), run_id.asc()]
        return [key.is_(None), *ways] if self.may_miss else ways


def run_columns() -> Select[Any]:
    """The columns of a list of runs."""
    return select(*COLUMNS).join_from(Run, Experiment, Run.experiment_id == Experiment.id, isouter=True)


def list_runs(
    session: Session, wanted: RunFilter, order: RunOrder, *, limit: int, cursor: str, with_config: bool
) -> Sequence[Row[Any]]:
    """One page of runs and one more, from the place where the cursor stands."""
    if order.metric:
        must_be_known(session, [order.metric], "sort")
    # First the ids, then the rows: sorting all runs with all of their columns takes ten times as long.
    key, run_id, page = _keys(_conditions(session, wanted), order)
    if cursor:
        page = page.where(_behind(order, key, run_id, cursor))
    ids = page.order_by(*order.ways(key, run_id)).limit(limit + 1).subquery()
    query = run_columns().add_columns(ids.c.sort_key, *([Run.config] if with_config else []))
    query = query.join(ids, ids.c.id == Run.id)
    return session.execute(query.order_by(*order.ways(ids.c.sort_key, ids.c.id))).all()


def count_runs(session: Session, wanted: RunFilter) -> int:
    """The number of runs that a filter lets through."""
    query = select(func.count()).select_from(Run).where(*_conditions(session, wanted))
    return session.scalar(query) or 0


def run_ids(session: Session, wanted: RunFilter) -> Sequence[str]:
    """The ids of the runs that a filter lets through, newest first."""
    query = select(Run.id).where(*_conditions(session, wanted))
    return session.scalars(query.order_by(Run.created_at.desc(), Run.id.desc()).limit(MOST_IDS)).all()


def _keys(
    conditions: Sequence[ColumnElement[bool]], order: RunOrder
) -> tuple[ColumnElement[Any], Any, Select[Any]]:
    """What is sorted by, the id beside it, and the query that gives both for every run that is wanted."""
    if not order.metric:
        key = order.column
        return key, Run.id, select(Run.id, key.label("sort_key")).where(*conditions)
    # Each summary is read once, not once for every mention of the value in the query.
    value = Run.summary[("last", order.metric)].as_string().label("value")
    values = select(Run.id, value).where(*conditions).cte("values_of_runs").prefix_with("MATERIALIZED")
    finite = case((values.c.value.in_(NOT_FINITE), None), else_=cast(values.c.value, Float(53)))
    return finite, values.c.id, select(values.c.id, finite.label("sort_key"))


def _conditions(session: Session, wanted: RunFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = [Run.deleting_at.is_(None)]
    if wanted.ids:
        found.append(Run.id.in_(wanted.ids))
    else:
        found.append(Run.archived_at.is_not(None) if wanted.archived else Run.archived_at.is_(None))
        found.append(Run.deleted_at.is_not(None) if wanted.deleted else Run.deleted_at.is_(None))
    if wanted.status:
        found.append(Run.status.in_(wanted.status))
    if wanted.verdict:
        found.append(Run.verdict.in_(wanted.verdict))
    if wanted.experiment:
        found.append(Run.experiment_id == wanted.experiment)
    if wanted.variant:
        found.append(Run.variant == wanted.variant)
    if wanted.tag:
        found.append(tagged(session, lambda tag: tag == wanted.tag))
    if (condition := condition_of(session, wanted.query)) is not None:
        found.append(condition)
    return found


def read_order(sort: str) -> RunOrder:
    """`-created_at`, `name`, `-summary.reward/mean`: a column or a metric's last value."""
    name = sort.removeprefix("-")
    if name in SORTABLE:
        return RunOrder(SORTABLE[name], "", sort.startswith("-"), sort)
    metric = name.removeprefix("summary.")
    if metric == name or not METRIC_NAME.fullmatch(metric):
        known = ", ".join((*SORTABLE, "summary.<metric>"))
        reason = f"is {sort!r}; {known} are expected, with - for descending"
        raise InvalidRequest([FieldError("sort", reason)])
    return RunOrder(None, metric, sort.startswith("-"), sort)


def place_of(row: Row[Any]) -> tuple[Any, ...]:
    """A row's place in the list, for the cursor."""
    return (row.sort_key, row.id)


def _behind(order: RunOrder, key: ColumnElement[Any], run_id: Any, cursor: str) -> ColumnElement[bool]:
    seen, last = read_cursor(cursor, order.kind, str, order=order.word) or (None, "")
    is_behind = run_id < last if order.is_descending else run_id > last
    if seen is None:
        return and_(key.is_(None), is_behind)
    further = key < seen if order.is_descending else key > seen
    behind = or_(further, and_(key == seen, is_behind))
    return or_(key.is_(None), behind) if order.may_miss else behind
