"""HTTP routes of the signal budget and of breakdowns."""

from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from backend.base.errors import FieldError, InvalidRequest
from backend.http.dependencies import ReadSession
from backend.http.paging import split_list
from backend.http.routing import Router
from backend.http.shared_responses import SharedAnswersOf
from backend.metrics.lineage import load_stamps
from backend.rollouts.breakdown.cells import By
from backend.rollouts.breakdown.change import Window, make_breakdown
from backend.rollouts.breakdown.schemas import BreakdownResponse, SignalBudgets
from backend.rollouts.signal_budget import MAX_BINS, load_signal_budgets
from backend.storage.models import Run
from backend.storage.run_lookup import require_run

router = Router(prefix="/api/v1", tags=["rollouts"])

MAX_RUNS = 100


@router.get("/signal-budget", response_model=SignalBudgets)
def signal_budget(
    request: Request,
    session: ReadSession,
    answers: SharedAnswersOf,
    runs: Annotated[str, Query(min_length=1, max_length=20_000, description="Ids of runs, with commas.")],
    bins: Annotated[int, Query(ge=0, le=MAX_BINS, description="Stretches of steps at most.")] = 0,
) -> Response:
    """Divide what runs sampled by whether it moved the policy, and why not. Has an `ETag`."""
    run_ids = split_list(runs)
    if not 0 < len(run_ids) <= MAX_RUNS:
        raise InvalidRequest([FieldError("runs", f"names {len(run_ids)} runs; expected 1 to {MAX_RUNS}")])
    for run in run_ids:
        require_run(session, run)
    return answers.answer(
        request,
        load_stamps(session, run_ids),
        lambda: {"items": load_signal_budgets(session, run_ids, bins), "next": None},
    )


Steps = Annotated[
    str,
    Query(pattern=r"^[0-9]{1,9}(-[0-9]{1,9})?$", description="A step, or the first and last one: `10-20`."),
]


@router.get("/runs/{run_id}/breakdown", response_model=BreakdownResponse)
def breakdown(
    run_id: str,
    request: Request,
    session: ReadSession,
    answers: SharedAnswersOf,
    metric: Annotated[str, Query(min_length=1, max_length=200)],
    before: Steps,
    after: Steps,
    by: By = "prompt",
) -> Response:
    """Break down the change of a metric between two windows of steps into a ranked sum. Has an `ETag`."""
    require_run(session, run_id)
    windows = _window("before", before), _window("after", after)

    def make() -> dict[str, Any]:
        return make_breakdown(session, session.get_one(Run, run_id), metric, *windows, by)

    return answers.answer(request, load_stamps(session, [run_id]), make)


def _window(name: str, text: str) -> Window:
    first, _, last = text.partition("-")
    window = Window(int(first), int(last or first))
    if window.last < window.first:
        raise InvalidRequest([FieldError(name, f"ends at step {window.last}, before it begins")])
    return window
