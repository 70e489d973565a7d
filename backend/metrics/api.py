"""Routes for metric curves and CSV exports."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Annotated, Any, Literal

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from backend.base.errors import FieldError, InvalidRequest
from backend.http.dependencies import LabOf, ReadSession
from backend.http.paging import split_list
from backend.http.routing import Router
from backend.http.shared_responses import SharedAnswersOf
from backend.metrics.axes import is_metric
from backend.metrics.csv import csv_lines
from backend.metrics.grouping import MAX_KEYS, RUN_KEYS, is_key
from backend.metrics.known import require_known
from backend.metrics.lineage import load_stamps
from backend.metrics.response import compact_item, make_answer
from backend.metrics.schemas import SeriesResponse, SpreadKind
from backend.metrics.view import View
from backend.storage.run_lookup import load_run_names, require_run

router = Router(prefix="/api/v1", tags=["metrics"])

MAX_SERIES = 200
MAX_POINTS = 200_000

MAX_TURN_SECONDS = 3.0
"""Maximum time that a request for curves waits for other requests, in seconds."""

_turn = Lock()

COMPACT_DESCRIPTION = (
    "Compact form: `x` only if it is not the step, `steps` as differences, values with seven digits."
)

ENDS_DESCRIPTION = (
    "Include the end of each curve, computed from all points without smoothing, regardless of the window."
)

X_DESCRIPTION = (
    "`step`, `wall` (seconds), `tokens`, `samples`, `flops`, or a metric: points whose step has no value of "
    "it are left out, and the others come in the order of its values."
)

GROUP_BY_DESCRIPTION = (
    "`variant`, `experiment`, `tag`, `verdict`, `config` (all but the seed) or `config.<field>`; "
    "several, separated by commas, make a group of each combination."
)


@router.get("/series", response_model=SeriesResponse, response_model_exclude_none=True)
def series(  # noqa: PLR0913, PLR0917 - query parameters
    request: Request,
    session: ReadSession,
    answers: SharedAnswersOf,
    runs: Annotated[str, Query(max_length=8_000, description="Ids, separated by commas.")],
    metrics: Annotated[str, Query(max_length=8_000, description="Names, separated by commas.")],
    x: Annotated[str, Query(max_length=200, description=X_DESCRIPTION)] = "step",
    x_min: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    x_max: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    max_points: Annotated[int, Query(ge=10, le=MAX_POINTS, description="Points per curve.")] = 500,
    smoothing: Annotated[float, Query(ge=0, le=0.999, allow_inf_nan=False)] = 0.0,
    group_by: Annotated[str, Query(max_length=1_000, description=GROUP_BY_DESCRIPTION)] = "",
    band: SpreadKind = "",
    after: Annotated[int | None, Query(ge=-1, le=2**31, description="Only steps after this one.")] = None,
    compact: Annotated[bool, Query(description=COMPACT_DESCRIPTION)] = False,  # noqa: FBT002 - a parameter of the address
    ends: Annotated[bool, Query(description=ENDS_DESCRIPTION)] = False,  # noqa: FBT002 - a parameter of the address
) -> Response:
    """Return the metric curves of runs, thinned so that spikes and the first and last point remain.

    The response has an `ETag`. If it is sent as `If-None-Match`, the response is empty until a curve changes.
    """
    run_ids, names = split_list(runs), split_list(metrics)
    _check_budget(run_ids, names, max_points, group_by=group_by)
    if is_metric(x):
        require_known(session, [x], "x")
    require_known(session, names, "metrics")
    row_by_run = load_run_names(session, run_ids)
    view = View(x, x_min, x_max, max_points, smoothing, after)

    def make() -> dict[str, Any]:
        with _wait_for_turn():
            answer = make_answer(
                session, run_ids, names, row_by_run, view, group_by=group_by, band=band, ends=ends
            )
            compact_series = (
                {"series": [compact_item(item, x) for item in answer["series"]]} if compact else {}
            )
            return answer | compact_series

    state = (
        list(map(tuple, row_by_run.values())),
        load_stamps(session, row_by_run, row_by_run),
    )  # keyed by all columns, because the named row shortens what it shows
    return answers.answer(request, state, make)


@contextmanager
def _wait_for_turn() -> Iterator[None]:
    """Wait until no other request computes curves, but at most MAX_TURN_SECONDS.

    Concurrent threads compete for the interpreter lock at every row that they read. Eight threads compute
    half as many charts per second as a single one.
    """
    has_lock = _turn.acquire(timeout=MAX_TURN_SECONDS)
    try:
        yield
    finally:
        if has_lock:
            _turn.release()


@router.get("/runs/{run_id}/metrics.csv", response_class=StreamingResponse)
def csv_of_run(
    run_id: str, session: ReadSession, lab: LabOf, attempts: Literal["newest", "all"] = "newest"
) -> StreamingResponse:
    """Export all metrics of a run as CSV with a row per step. `attempts=all` includes hidden rows."""
    require_run(session, run_id)
    lines = csv_lines(lab.sessions, run_id, all_attempts=attempts == "all")
    disposition = f"attachment; filename=metrics-{run_id}.csv"
    return StreamingResponse(
        lines, media_type="text/csv; charset=utf-8", headers={"Content-Disposition": disposition}
    )


def _check_budget(runs: Sequence[str], metrics: Sequence[str], max_points: int, *, group_by: str) -> None:
    errors = []
    if not runs or not metrics:
        errors.append(FieldError("metrics" if runs else "runs", "expected at least one"))
    if (count := len(runs) * len(metrics)) > MAX_SERIES:
        errors.append(FieldError("runs", f"{count} series were asked for; at most {MAX_SERIES} a call"))
    elif count * max_points > MAX_POINTS:
        reason = f"{count} series of {max_points} points were asked for; at most {MAX_POINTS:,} points a call"
        errors.append(FieldError("max_points", reason))
    keys = split_list(group_by)
    if invalid_keys := [key for key in keys if not is_key(key)]:
        reason = f"is {invalid_keys[0]!r}; expected {', '.join(RUN_KEYS)} or config.<field>"
        errors.append(FieldError("group_by", reason))
    elif len(keys) > MAX_KEYS:
        errors.append(FieldError("group_by", f"{len(keys)} keys were given; at most {MAX_KEYS}"))
    if errors:
        raise InvalidRequest(errors)
