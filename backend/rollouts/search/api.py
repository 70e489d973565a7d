"""HTTP routes of the search in completions, of phrase lift, and of labels."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request
from starlette.responses import StreamingResponse

from backend.base.errors import FieldError, InvalidRequest
from backend.http.dependencies import LabOf, ReadSession, WriteSession
from backend.http.paging import split_list, write_cursor
from backend.http.responses import Cursor, Json
from backend.http.routing import Router
from backend.http.timeout import take_time
from backend.rollouts import labels
from backend.rollouts.api import Kind, Number
from backend.rollouts.judgements import MAX_BYTES, import_judgements
from backend.rollouts.reading import RolloutFilter
from backend.rollouts.schemas import ImportedJudgements, LiftResponse, SearchMatchPage, StepCounts
from backend.rollouts.search import lift
from backend.rollouts.search.hits import count_waiting, hits_json
from backend.rollouts.search.pages import ORDERS, counts_by_step, find
from backend.rollouts.search.query import parse
from backend.rollouts.search.scope import Scope, find_runs
from backend.rollouts.selection import FORMATS, export_selection
from backend.storage.engine import open_read_session

router = Router(prefix="/api/v1/rollouts", tags=["rollouts"])

TIMEOUT_SECONDS = 10.0
"""Time limit of a search in seconds, after which the response is 503."""

Step = Annotated[int | None, Query(ge=0, le=2**31 - 1)]
Search = Annotated[
    str, Query(description='Words, `"phrases"`, `prefix*`, `` `exact strings` ``, and `-not`; see Searching.')
]


def _parse_scope(  # noqa: PLR0913, PLR0917 - these are the query parameters
    lab: LabOf,
    runs: Annotated[str, Query(max_length=20_000, description="Ids of runs, with commas.")] = "",
    experiment: Annotated[str, Query(max_length=64, description="All runs of this experiment.")] = "",
    first_step: Step = None,
    last_step: Step = None,
    kind: Kind = "",
    min_reward: Number = None,
    max_reward: Number = None,
    flag: Annotated[str, Query(max_length=64)] = "",
    correct: bool | None = None,  # noqa: FBT001 - a query parameter
    label: Annotated[str, Query(max_length=labels.MAX_LABEL_CHARACTERS)] = "",
) -> Scope:
    take_time(TIMEOUT_SECONDS)
    rollout_filter = RolloutFilter(
        run="", min_reward=min_reward, max_reward=max_reward, flag=flag, correct=correct
    )
    with open_read_session(lab.sessions) as session:
        run_ids = find_runs(session, split_list(runs), experiment)
    return Scope(run_ids, first_step, last_step, kind, rollout_filter, label)


ScopeOf = Annotated[Scope, Depends(_parse_scope)]


@router.get("/search", response_model=SearchMatchPage)
def search(
    session: ReadSession,
    scope: ScopeOf,
    q: Search = "",
    sort: Annotated[str, Query(max_length=20)] = "step",
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    cursor: Cursor = "",
) -> Json:
    """List the matching completions with snippets. Without `q`, list all that match the filters.

    A page may contain fewer than `limit` items, even none, and still have a next page: see `searched_to`.
    """
    terms = parse(q)
    if sort not in ORDERS:
        raise InvalidRequest([FieldError("sort", f"is {sort!r}; expected step or -step")])
    page = find(session, scope, terms, sort=sort, limit=limit, cursor=cursor)
    return Json(
        {
            "items": hits_json(session, page.rows, terms),
            "next": page.next and write_cursor(page.next, order=sort),
            "searched_to": page.searched_to,
            "waiting": count_waiting(session, scope),
        }
    )


@router.get("/search/steps", response_model=StepCounts)
def search_steps(session: ReadSession, scope: ScopeOf, q: Search = "") -> Json:
    """Count the matching completions of each step, and all stored completions."""
    counts = counts_by_step(session, scope, parse(q))
    return Json({"items": counts.items, "next": None, "every": counts.every})


@router.get("/search/export")
def export_search(
    lab: LabOf,
    scope: ScopeOf,
    q: Search = "",
    file: Annotated[Literal["jsonl", "parquet"], Query(description="Format of the file.")] = "jsonl",
) -> StreamingResponse:
    """Export all matching completions with prompts and labels as a file, at most 100,000."""
    content = export_selection(lab.sessions, scope, parse(q), file)
    headers = {"Content-Disposition": f'attachment; filename="rollouts.{file}"'}
    return StreamingResponse(content, media_type=FORMATS[file], headers=headers)


@router.get("/lift", response_model=LiftResponse)
def lift_of(
    session: ReadSession,
    scope: ScopeOf,
    by: Annotated[Literal["steps", "correct", "runs"], Query(description="The two sets.")] = "steps",
    a_first: Step = None,
    a_last: Step = None,
    b_first: Step = None,
    b_last: Step = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 30,
) -> Json:
    """Compare phrases between two windows of steps, wrong and right completions, or two runs."""
    sets = _compared_sets(scope, by, (a_first, a_last), (b_first, b_last))
    samples = [lift.read_sample(session, subset) for _, subset in sets]
    growing_phrases, falling_phrases = lift.compare_phrases(*samples, limit=limit)
    a, b = (
        {
            "label": name,
            "completions": len(sample.texts),
            "of": sample.total,
            "words": sum(map(len, sample.texts)),
        }
        for (name, _), sample in zip(sets, samples, strict=True)
    )
    return Json({"a": a, "b": b, "items": _phrases(growing_phrases), "fell": _phrases(falling_phrases)})


Window = tuple[int | None, int | None]


def _compared_sets(scope: Scope, by: str, a: Window, b: Window) -> list[tuple[str, Scope]]:
    if by == "correct":
        return [
            (name, scope.restrict(first=None, last=None, correct=is_right))
            for name, is_right in (("wrong", False), ("right", True))
        ]
    if by == "runs":
        if len(scope.runs) != 2:
            reason = f"names {len(scope.runs)} runs; two are compared"
            raise InvalidRequest([FieldError("runs", reason)])
        return [(run, scope.restrict_to_run(run)) for run in scope.runs]
    if missing_names := [
        name for name, step in zip(("a_last", "b_first"), (a[1], b[0]), strict=True) if step is None
    ]:
        raise InvalidRequest(
            [FieldError(name, "is missing: two windows of steps are compared") for name in missing_names]
        )
    return [
        (
            f"steps {first or 0} to {'the last' if last is None else last}",
            scope.restrict(first=first, last=last, correct=None),
        )
        for first, last in (a, b)
    ]


def _phrases(phrases: list[lift.Phrase]) -> list[dict[str, Any]]:
    return [
        {"phrase": phrase.text, "a": phrase.a, "b": phrase.b, "log_odds": phrase.log_odds, "z": phrase.z}
        for phrase in phrases
    ]


@router.get("/labels", response_model=labels.LabelCounts)
def used_labels(session: ReadSession, scope: ScopeOf) -> Json:
    """List the labels in use in the given runs, most frequent first."""
    return Json({"items": labels.count_labels(session, scope.runs), "next": None})


@router.post("/labels/import", response_model=ImportedJudgements)
async def import_labels(request: Request, lab: LabOf) -> Json:
    """Store judgements from JSON lines with `rollout`, `label` and optionally `note`, and report refused
    rows.
    """
    return Json(await import_judgements(request, lab.sessions, max_bytes=MAX_BYTES))


@router.post("/{completion_id}/labels", response_model=labels.LabelList)
def put_label(completion_id: str, body: labels.LabelRequest, request: Request, session: WriteSession) -> Json:
    """Add a label to a completion or change its note; 409 if the label has been changed in the meantime."""
    role = str(request.state.role)
    return Json({"items": labels.put_label(session, completion_id, body, role)})


@router.delete("/{completion_id}/labels", response_model=labels.LabelList)
def remove_label(
    completion_id: str,
    session: WriteSession,
    label: Annotated[str, Query(min_length=1, max_length=labels.MAX_LABEL_CHARACTERS)],
    version: Annotated[int, Query(ge=1, lt=2**31)],
) -> Json:
    """Remove a label from a completion; 409 if the label has been changed in the meantime."""
    return Json({"items": labels.remove_label(session, completion_id, label, version)})
