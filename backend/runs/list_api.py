"""HTTP routes for lists of runs: queries and their fields, bulk actions and saved views."""

from collections.abc import Sequence
from typing import Annotated, Any, get_args

from fastapi import BackgroundTasks, Depends, Query

from backend.base.errors import FieldError, InvalidRequest
from backend.config.causes import Verdict
from backend.http.dependencies import LabOf, ReadSession, WriteSession
from backend.http.paging import make_page, split_list
from backend.http.responses import Cursor, Json, Limit
from backend.http.routing import Router
from backend.runs.bulk import MAX_RUNS, act_on
from backend.runs.changed_settings import changed_settings
from backend.runs.lifecycle import STATUSES
from backend.runs.list import RunFilter, ValueField, count_runs, field_values, list_runs, run_ids
from backend.runs.list_schemas import ActionOutcome, ActionRequest, QueryFieldPage, RunIds, RunValuePage
from backend.runs.order import cursor_key, read_order
from backend.runs.query.catalog import fields_json
from backend.runs.queue.doorbell import ring
from backend.runs.schemas import RunPage
from backend.runs.store import load_attempts, run_json
from backend.runs.views import ViewItem, ViewPage, ViewRequest, delete_view, save_view, saved_views
from backend.storage.engine import open_read_session

router = Router(prefix="/api/v1", tags=["runs"])

Text = Annotated[str, Query(max_length=200)]
Include = Annotated[str, Query(pattern=r"^((config|attempts|changes)(,(config|attempts|changes)){0,2})?$")]


async def _parse_filter(  # noqa: PLR0913 - these are the query parameters
    query: Annotated[
        str,
        Query(description="Such as `preset = dapo and eval/accuracy > .5`; plain words search names."),
    ] = "",
    status: Annotated[str, Query(max_length=200, description="Statuses, separated by commas.")] = "",
    verdict: Annotated[str, Query(max_length=200, description="Verdicts, separated by commas.")] = "",
    experiment: Text = "",
    variant: Text = "",
    tag: Text = "",
    ids: Annotated[
        str,
        Query(max_length=8_000, description="Ids, separated by commas; archived and trashed runs too."),
    ] = "",
    *,
    archived: bool = False,
    deleted: bool = False,
) -> RunFilter:
    statuses = _parse_choices("status", status, STATUSES)
    verdicts = _parse_choices("verdict", verdict, get_args(Verdict))
    return RunFilter(
        statuses, verdicts, experiment, variant, tag, query, archived, deleted, tuple(split_list(ids))
    )


RunFilterOf = Annotated[RunFilter, Depends(_parse_filter)]


def _parse_choices(field: str, text: str, choices: Sequence[str]) -> tuple[str, ...]:
    """Return the items of a comma-separated list; raise InvalidRequest for an unknown item."""
    items = split_list(text)
    if unknown_items := [item for item in items if item not in choices]:
        reason = f"is {unknown_items[0]!r}; expected one of {', '.join(choices)}"
        raise InvalidRequest([FieldError(field, reason)])
    return tuple(items)


@router.get("/runs", response_model=RunPage, response_model_exclude_unset=True)
def list_all(
    session: ReadSession,
    run_filter: RunFilterOf,
    sort: Annotated[
        str, Query(max_length=150, description="Field, `summary.<metric>`, or `config.<path>`.")
    ] = "-created_at",
    include: Include = "",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> Json:
    """List runs, newest first by default. Runs without the value that they are sorted by come last."""
    with_config = "config" in include
    rows = list_runs(
        session, run_filter, read_order(sort), limit=limit, cursor=cursor, with_config=with_config
    )
    with_attempts = "attempts" in include
    attempts = load_attempts(session, [row.id for row in rows[:limit]]) if with_attempts else {}

    with_changes = "changes" in include
    changes = changed_settings(session, (row.config_hash for row in rows)) if with_changes else {}

    def to_json(row: Any) -> dict[str, Any]:
        run = run_json(row, attempts=attempts.get(row.id, []) if with_attempts else None)
        return run | {"changes": changes.get(row.config_hash, {})} if with_changes else run

    page = make_page(rows, limit, to_json, cursor_key, order=sort)
    if not cursor:
        page["total"] = len(rows) if page["next"] is None else count_runs(session, run_filter)
    return Json(page)


@router.get("/runs/ids", response_model=RunIds)
def ids(session: ReadSession, run_filter: RunFilterOf) -> Json:
    """List the ids of all runs that match a filter, newest first, at most 100,000."""
    return Json({"ids": run_ids(session, run_filter)})


@router.post("/runs/actions", response_model=ActionOutcome)
def act(body: ActionRequest, lab: LabOf, later: BackgroundTasks) -> Json:
    """Tag, archive, stop, trash, restore or delete many runs, selected by their ids or by a query.

    The action processes at most 10,000 runs in batches of 500, each in one transaction. It is safe to repeat:
    runs that are already in the desired state stay unchanged. The opposite action on the runs in `changed`
    undoes it.
    """
    with open_read_session(lab.sessions) as session:
        run_filter = RunFilter(query=body.query or "", archived=body.archived, deleted=body.deleted)
        chosen_ids = list(run_ids(session, run_filter)) if body.ids is None else body.ids
    if len(chosen_ids) > MAX_RUNS:
        reason = f"matches {len(chosen_ids):,} runs; at most {MAX_RUNS:,} are changed at a time"
        raise InvalidRequest([FieldError("query", reason)])
    outcome = act_on(lab.sessions, body.action, chosen_ids, tag=body.tag)
    if body.action == "restore":
        later.add_task(ring, lab.settings)
    return Json(outcome, background=later)


@router.get("/run-fields", response_model=QueryFieldPage)
def fields(session: ReadSession) -> Json:
    """List the fields that a query can use, with values that runs have in them."""
    return Json({"items": fields_json(session), "next": None})


@router.get("/run-values", response_model=RunValuePage)
def values(
    session: ReadSession, run_filter: RunFilterOf, field: ValueField, search: Text = "", limit: Limit = 50
) -> Json:
    """List the experiments, variants or tags of the runs that match a filter."""
    return Json({"items": field_values(session, run_filter, field, search=search, limit=limit), "next": None})


@router.get("/views", response_model=ViewPage)
def views(session: ReadSession) -> Json:
    """List saved views by name."""
    return Json({"items": saved_views(session), "next": None})


@router.put("/views", response_model=ViewItem)
def save(body: ViewRequest, session: WriteSession) -> Json:
    """Save a view, replacing a view with the same name."""
    return Json(save_view(session, body))


@router.delete("/views/{view_id}", response_model=ViewItem)
def forget(view_id: str, session: WriteSession) -> Json:
    """Delete a view and return it."""
    return Json(delete_view(session, view_id))
