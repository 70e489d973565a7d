"""Query the list of runs with filters, in pages that stay stable while runs are added."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

from sqlalchemy import Row, Select, Text, cast, func, select
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from backend.http.paging import read_cursor
from backend.metrics.known import require_known
from backend.runs.order import RunOrder, read_order, select_in_order
from backend.runs.query.catalog import tag_rows
from backend.runs.query.conditions import has_tag, make_condition
from backend.runs.query.fields import require_path
from backend.storage.models import Experiment, Run

MAX_IDS = 100_000
"""Maximum number of ids in one response."""

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
    Run.requested_action,
    Run.priority,
    Run.archived_at,
    Run.deleted_at,
    Run.steps,
    Run.last_step,
    # The summary is read as text and passed on unchanged, because parsing it costs more than everything else.
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

_RUNS = select(*COLUMNS).join_from(Run, Experiment, Run.experiment_id == Experiment.id, isouter=True)


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Filter for a list of runs."""

    status: Sequence[str] = ()
    verdict: Sequence[str] = ()
    experiment: str = ""
    variant: str = ""
    tag: str = ""
    query: str = ""
    """A query in the syntax of runs/query/syntax.py."""
    archived: bool = False
    deleted: bool = False
    ids: Sequence[str] = ()
    """Ids of the only runs to list, including archived and trashed ones; empty for no restriction."""


ALL_RUNS = RunFilter()
"""The empty filter: all runs that are neither archived nor in the trash."""


def run_columns() -> Select[Any]:
    """Return the query for the columns of a list of runs."""
    return _RUNS


def list_runs(
    session: Session, run_filter: RunFilter, order: RunOrder, *, limit: int, cursor: str, with_config: bool
) -> Sequence[Row[Any]]:
    """Return a page of runs, starting at the cursor, and one additional run."""
    if cursor or run_filter != ALL_RUNS:
        query = _page(next_ids(session, run_filter, order, limit=limit, cursor=cursor), order, with_config)
    else:
        _check(session, order)
        query = _first_page(order.requested_order, limit, with_config)
    return session.execute(query).all()


@lru_cache(maxsize=100)
def _first_page(sort: str, limit: int, with_config: bool) -> Select[Any]:  # noqa: FBT001 - a key of the cache
    """Return the query for the first page without filters, cached because building it takes longer than
    running it.
    """
    order = read_order(sort)
    return _page(select_in_order(_list_conditions(ALL_RUNS), order, None, limit + 1), order, with_config)


def _page(next_ones: Select[Any], order: RunOrder, with_config: bool) -> Select[Any]:  # noqa: FBT001
    # Select the ids first and then the rows: sorting all runs with all their columns takes ten times as long.
    ids = next_ones.subquery()
    query = run_columns().add_columns(ids.c.sort_key, *([Run.config] if with_config else []))
    return query.join(ids, ids.c.id == Run.id).order_by(*order.order_by_clauses(ids.c.sort_key, ids.c.id))


def next_ids(
    session: Session, run_filter: RunFilter, order: RunOrder, *, limit: int, cursor: str = ""
) -> Select[Any]:
    """Return the query for the ids and sort keys of a page of runs and one additional run."""
    _check(session, order)
    last_key = read_cursor(cursor, order.kind, str, order=order.requested_order)
    return select_in_order(_conditions(session, run_filter), order, last_key, limit + 1)


def _check(session: Session, order: RunOrder) -> None:
    """Raise InvalidRequest if no run has the metric, or no config the path, that the order sorts by."""
    if order.metric:
        require_known(session, [order.metric], "sort")
    if order.field:
        require_path(session, order.field, "sort")


def count_runs(session: Session, run_filter: RunFilter) -> int:
    """Return the number of runs that match a filter."""
    return (
        session.scalar(_count_all() if run_filter == ALL_RUNS else _count(_conditions(session, run_filter)))
        or 0
    )


@cache
def _count_all() -> Select[Any]:
    return _count(_list_conditions(ALL_RUNS))


def _count(conditions: Sequence[ColumnElement[bool]]) -> Select[Any]:
    return select(func.count()).select_from(Run).where(*conditions)


def run_ids(session: Session, run_filter: RunFilter) -> Sequence[str]:
    """Return the ids of the runs that match a filter, newest first."""
    query = select(Run.id).where(*_conditions(session, run_filter))
    return session.scalars(query.order_by(Run.created_at.desc(), Run.id.desc()).limit(MAX_IDS)).all()


ValueField = Literal["experiment", "variant", "tag"]


def field_values(
    session: Session, run_filter: RunFilter, field: ValueField, *, search: str, limit: int
) -> list[dict[str, Any]]:
    """Return the values of a field in the listed runs, most frequent first, as `list_schemas.RunValue`."""
    query = {
        "experiment": select(Run.experiment_id, Experiment.name).join_from(Run, Experiment),
        "variant": select(Run.variant, Run.variant.label("label")),
        "tag": tag_rows(session),
    }[field].where(*_conditions(session, run_filter))
    value, label = list(query.selected_columns)
    count = func.count(Run.id.distinct())
    query = query.add_columns(count).where(label != "", label.icontains(search, autoescape=True))
    rows = session.execute(query.group_by(value, label).order_by(count.desc(), label).limit(limit))
    return [{"value": value, "label": label, "runs": runs} for value, label, runs in rows]


def _list_conditions(run_filter: RunFilter) -> list[ColumnElement[bool]]:
    """Return the conditions that select active, archived or trashed runs."""
    return [
        Run.deleting_at.is_(None),
        Run.archived_at.is_not(None) if run_filter.archived else Run.archived_at.is_(None),
        Run.deleted_at.is_not(None) if run_filter.deleted else Run.deleted_at.is_(None),
    ]


def _conditions(session: Session, run_filter: RunFilter) -> list[ColumnElement[bool]]:
    conditions = _list_conditions(run_filter)
    if run_filter.ids:
        conditions = [Run.deleting_at.is_(None), Run.id.in_(run_filter.ids)]
    if run_filter.status:
        conditions.append(Run.status.in_(run_filter.status))
    if run_filter.verdict:
        conditions.append(Run.verdict.in_(run_filter.verdict))
    if run_filter.experiment:
        conditions.append(Run.experiment_id == run_filter.experiment)
    if run_filter.variant:
        conditions.append(Run.variant == run_filter.variant)
    if run_filter.tag:
        conditions.append(has_tag(session, lambda tag: tag == run_filter.tag))
    if (condition := make_condition(session, run_filter.query)) is not None:
        conditions.append(condition)
    return conditions
