"""The list of runs: filters, and pages that stay put while runs are added."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, Text, cast, func, select
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from backend.db.models import Experiment, Run
from backend.http.paging import read_cursor
from backend.metrics.known import must_be_known
from backend.runs.order import RunOrder, in_order
from backend.runs.query.conditions import condition_of, tagged
from backend.runs.query.fields import must_be_a_path

MOST_IDS = 100_000
"""Of one answer."""

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

_RUNS = select(*COLUMNS).join_from(Run, Experiment, Run.experiment_id == Experiment.id, isouter=True)


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


def run_columns() -> Select[Any]:
    """The columns of a list of runs."""
    return _RUNS


def list_runs(
    session: Session, wanted: RunFilter, order: RunOrder, *, limit: int, cursor: str, with_config: bool
) -> Sequence[Row[Any]]:
    """One page of runs and one more, from the place where the cursor stands."""
    # First the ids, then the rows: sorting all runs with all of their columns takes ten times as long.
    ids = next_ids(session, wanted, order, limit=limit, cursor=cursor).subquery()
    query = run_columns().add_columns(ids.c.sort_key, *([Run.config] if with_config else []))
    query = query.join(ids, ids.c.id == Run.id)
    return session.execute(query.order_by(*order.ways(ids.c.sort_key, ids.c.id))).all()


def next_ids(
    session: Session, wanted: RunFilter, order: RunOrder, *, limit: int, cursor: str = ""
) -> Select[Any]:
    """Id and sort key of the runs of a page and of one more."""
    if order.metric:
        must_be_known(session, [order.metric], "sort")
    if order.field:
        must_be_a_path(session, order.field, "sort")
    seen = read_cursor(cursor, order.kind, str, order=order.word)
    return in_order(_conditions(session, wanted), order, seen, limit + 1)


def count_runs(session: Session, wanted: RunFilter) -> int:
    """The number of runs that a filter lets through."""
    query = select(func.count()).select_from(Run).where(*_conditions(session, wanted))
    return session.scalar(query) or 0


def run_ids(session: Session, wanted: RunFilter) -> Sequence[str]:
    """The ids of the runs that a filter lets through, newest first."""
    query = select(Run.id).where(*_conditions(session, wanted))
    return session.scalars(query.order_by(Run.created_at.desc(), Run.id.desc()).limit(MOST_IDS)).all()


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
