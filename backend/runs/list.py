"""The list of runs: filters, sorting and pages that stay put while runs are added."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, Text, and_, case, cast, or_, select
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from backend.errors import FieldError, InvalidRequest
from backend.metrics.values import SPELLINGS
from backend.models import Experiment, Run
from backend.paging import read_cursor

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
}

METRIC_NAME = re.compile(r"[\w./@:<>-]{1,128}")

COLUMNS = (
    Run.id,
    Run.name,
    Run.experiment_id,
    Experiment.name.label("experiment_name"),
    Run.variant,
    Run.seed,
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
    Run.parent_run,
    Run.fork_step,
    Run.created_at,
    Run.queued_at,
    Run.started_at,
    Run.finished_at,
    Run.changed_at,
)


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs are listed."""

    status: Sequence[str] = ()
    experiment: str = ""
    variant: str = ""
    tag: str = ""
    q: str = ""
    """Part of the name, in any case of letters."""
    archived: bool = False
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class RunOrder:
    """How runs are sorted; a missing value comes last in either direction."""

    key: ColumnElement[Any]
    is_descending: bool


def run_columns() -> Select[Any]:
    """What a list shows of a run."""
    return select(*COLUMNS).join_from(Run, Experiment, Run.experiment_id == Experiment.id, isouter=True)


def list_runs(
    session: Session, wanted: RunFilter, order: RunOrder, *, limit: int, cursor: str, with_config: bool
) -> Sequence[Row[Any]]:
    """One page of runs and one more, from the place where the cursor stands."""
    query = run_columns().add_columns(order.key.label("sort_key"))
    if with_config:
        query = query.add_columns(Run.config)
    query = query.where(*_conditions(wanted))
    if cursor:
        query = query.where(_behind(order, cursor))
    missing = order.key.is_(None)
    ways = (order.key.desc(), Run.id.desc()) if order.is_descending else (order.key.asc(), Run.id.asc())
    return session.execute(query.order_by(missing, *ways).limit(limit + 1)).all()


def _conditions(wanted: RunFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = [
        Run.archived_at.is_not(None) if wanted.archived else Run.archived_at.is_(None),
        Run.deleted_at.is_not(None) if wanted.deleted else Run.deleted_at.is_(None),
    ]
    if wanted.status:
        found.append(Run.status.in_(wanted.status))
    if wanted.experiment:
        found.append(Run.experiment_id == wanted.experiment)
    if wanted.variant:
        found.append(Run.variant == wanted.variant)
    if wanted.tag:
        found.append(cast(Run.tags, Text).contains(json.dumps(wanted.tag), autoescape=True))
    if wanted.q:
        found.append(Run.name.icontains(wanted.q, autoescape=True))
    return found


def read_order(sort: str) -> RunOrder:
    """`-created_at`, `name`, `-summary.reward/mean`: a column or a metric's last value."""
    name = sort.removeprefix("-")
    if name in SORTABLE:
        return RunOrder(SORTABLE[name], sort.startswith("-"))
    metric = name.removeprefix("summary.")
    if metric == name or not METRIC_NAME.fullmatch(metric):
        known = ", ".join((*SORTABLE, "summary.<metric>"))
        raise InvalidRequest(
            [FieldError("sort", f"is {sort!r}; {known} are expected, with - for descending")]
        )
    last = Run.summary[("last", metric)]
    return RunOrder(
        case((last.as_string().in_(SPELLINGS), None), else_=last.as_float()), sort.startswith("-")
    )


def place_of(row: Row[Any]) -> tuple[Any, ...]:
    """Where a row stands, for the cursor."""
    return (row.sort_key, row.id)


def _behind(order: RunOrder, cursor: str) -> ColumnElement[bool]:
    place = read_cursor(cursor, (str, int, float, type(None)), str)
    key, run_id = place or (None, "")
    is_behind = Run.id < run_id if order.is_descending else Run.id > run_id
    if key is None:
        return and_(order.key.is_(None), is_behind)
    further = order.key < key if order.is_descending else order.key > key
    return or_(order.key.is_(None), further, and_(order.key == key, is_behind))
