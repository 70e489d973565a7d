"""HTTP routes of rollouts."""

import re
from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from backend.base.errors import NotFound
from backend.config.pass_rates import read_rates
from backend.http.auth.permissions import Role
from backend.http.dependencies import LabOf, ReadSession, SettingsOf
from backend.http.paging import make_page
from backend.http.responses import Cursor, Json, items_as_json
from backend.http.routing import Router
from backend.http.shared_responses import SharedAnswersOf
from backend.http.timeout import take_time
from backend.http.upload import CannotStore
from backend.metrics.lineage import load_stamps
from backend.rollouts.atlas import Order, State, load_atlas, load_probes, prompt_lines, prompts_json
from backend.rollouts.breakdown.schemas import Mismatch
from backend.rollouts.contributions import load_loss_sums
from backend.rollouts.counting import counts_by_step
from backend.rollouts.evidence import load_evidence
from backend.rollouts.mismatch import Kind as CorrectionKind
from backend.rollouts.mismatch import Level, load_mismatch
from backend.rollouts.pass_rates import RatesOrder, StoredRates, describe_rates, load_rates, store_rates
from backend.rollouts.reading import (
    RolloutFilter,
    cursor_key,
    group_json,
    list_groups,
    load_page_completions,
    load_tokens,
    step_counts,
)
from backend.rollouts.schemas import (
    CountPage,
    EvidencePage,
    GroupPage,
    LossSums,
    ProbeMatrix,
    PromptAtlas,
    StepPage,
    TokensResponse,
    WhatIf,
    WhatIfOrder,
)
from backend.rollouts.what_if import OPERATOR_ALLOWANCE, VIEWER_ALLOWANCE, compute_what_if
from backend.rollouts.what_if import TIMEOUT_SECONDS as WHAT_IF_SECONDS
from backend.storage.models import Run
from backend.storage.run_lookup import require_run

router = Router(prefix="/api/v1/rollouts", tags=["rollouts"])

RunId = Annotated[str, Query(min_length=1, max_length=64, description="Id of the run.")]
Kind = Annotated[
    str,
    Query(
        pattern=r"^(train|eval(/[a-z0-9][a-z0-9_-]{0,31})?)?$",
        description="`train`, `eval` for the held-out set, or `eval/<suite>`.",
    ),
]
PromptId = Annotated[str, Query(max_length=1000, description="The prompt's id.")]
SHA256_PATTERN = re.compile(r"[0-9a-f]{64}")
MAX_PROBED = 16
"""Maximum number of runs whose evaluations are shown side by side."""

Number = Annotated[float | None, Query(allow_inf_nan=False)]


@router.get("", response_model=GroupPage)
def list_all(  # noqa: PLR0913, PLR0917 - these are the query parameters
    request: Request,
    session: ReadSession,
    answers: SharedAnswersOf,
    run: RunId,
    step: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    kind: Kind = "",
    prompt: PromptId = "",
    min_reward: Number = None,
    max_reward: Number = None,
    flag: Annotated[str, Query(max_length=64)] = "",
    correct: bool | None = None,  # noqa: FBT001 - a query parameter
    q: Annotated[str, Query(max_length=1000, description="Part of a completion's text.")] = "",
    sort: Annotated[str, Query(max_length=20)] = "step",
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    cursor: Cursor = "",
) -> Response:
    """List groups with at least one matching completion, each with all its completions. Has an `ETag`."""
    require_run(session, run)
    rollout_filter = RolloutFilter(run, step, kind, prompt, min_reward, max_reward, flag, correct, q)

    def make() -> dict[str, Any]:
        groups = list_groups(session, rollout_filter, sort=sort, limit=limit, cursor=cursor)
        completions = load_page_completions(session, groups[:limit])
        return make_page(
            groups,
            len(completions),
            lambda group: group_json(group, completions[group.id]),
            lambda group: cursor_key(group, sort),
            order=sort,
        )

    return answers.answer(request, load_stamps(session, [run]), make)


@router.get("/steps", response_model=StepPage)
def steps(session: ReadSession, lab: LabOf, run: RunId, prompt: PromptId = "") -> StreamingResponse:
    """List the steps at which rollouts are stored, with their mean rewards."""
    require_run(session, run)
    counts = step_counts(lab.sessions, run, prompt)
    return StreamingResponse(items_as_json(counts), media_type="application/json")


@router.get("/counts", response_model=CountPage)
def counts(
    request: Request,
    session: ReadSession,
    answers: SharedAnswersOf,
    run: RunId,
    kind: Kind = "train",
    mark: Annotated[str, Query(max_length=400, description="Marks, separated by commas: all of these.")] = "",
    min_reward: Number = None,
) -> Response:
    """Count the completions of each step that have some marks, including those not stored. Has an `ETag`."""
    require_run(session, run)
    return answers.answer(
        request,
        load_stamps(session, [run]),
        lambda: {
            "items": counts_by_step(session, run, kind, [m for m in mark.split(",") if m], min_reward),
            "next": None,
        },
    )


@router.get("/evidence", response_model=EvidencePage)
def evidence(request: Request, session: ReadSession, answers: SharedAnswersOf, run: RunId) -> Response:
    """List steps whose stored completions show the causes named by the diagnosis. Has an `ETag`."""
    require_run(session, run)
    return answers.answer(
        request, load_stamps(session, [run]), lambda: {"items": load_evidence(session, run), "next": None}
    )


@router.get("/mismatch", response_model=Mismatch)
def of_mismatch(
    request: Request,
    session: ReadSession,
    answers: SharedAnswersOf,
    run: RunId,
    step: Annotated[int, Query(ge=0, le=2**31 - 1)],
    kind: Annotated[CorrectionKind | None, Query(description="By default the correction of the run.")] = None,
    level: Level = "product",
) -> Response:
    """Compare the stored token probabilities of sampler and trainer, and each cap's effect. Has an `ETag`."""
    require_run(session, run)
    return answers.answer(
        request,
        load_stamps(session, [run]),
        lambda: load_mismatch(session, session.get_one(Run, run), step, kind, level),
    )


@router.get("/probes", response_model=ProbeMatrix)
def probes(
    request: Request,
    session: ReadSession,
    answers: SharedAnswersOf,
    run: Annotated[
        str, Query(min_length=1, max_length=20_000, description="Ids of runs, with commas; 16 are shown.")
    ],
    kind: Kind = "eval",
) -> Response:
    """Return the prompts of an evaluation with their results at all steps of the runs. Has an `ETag`."""
    requested_runs = list(dict.fromkeys(run.split(",")))
    runs = requested_runs[:MAX_PROBED]
    for run_id in runs:
        require_run(session, run_id)
    return answers.answer(
        request,
        load_stamps(session, runs),
        lambda: {**load_probes(session, runs, kind), "runs_left_out": len(requested_runs) - len(runs)},
    )


PromptState = Annotated[State | None, Query(description="Prompts of this state alone.")]


@router.get("/prompts", response_model=PromptAtlas)
def prompts(
    request: Request,
    session: ReadSession,
    answers: SharedAnswersOf,
    run: RunId,
    state: PromptState = None,
    sort: Order = "drift",
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """List training prompts with their pass rates over time. Has an `ETag`."""
    require_run(session, run)

    def make() -> dict[str, Any]:
        atlas = load_atlas(session, run, state=state, sort=sort)
        return {
            "items": prompts_json(session, run, atlas.prompts[:limit]),
            "next": None,
            "matching": len(atlas.prompts),
            "counts": atlas.counts,
            "first_step": atlas.first_step,
            "last_step": atlas.last_step,
        }

    return answers.answer(request, load_stamps(session, [run]), make)


@router.get("/prompts.jsonl", response_class=Response)
def prompts_as_rows(
    session: ReadSession,
    run: RunId,
    state: PromptState = None,
    sort: Order = "drift",
    most: Annotated[
        int, Query(ge=1, le=10_000, description="Maximum number of prompts, in the requested order.")
    ] = 10_000,
) -> Response:
    """Export training prompts as dataset rows with `prompt`, `answer` and their origin."""
    require_run(session, run)
    selected_prompts = load_atlas(session, run, state=state, sort=sort).prompts[:most]
    return Response(prompt_lines(session, run, selected_prompts), media_type="application/x-ndjson")


@router.post("/pass-rates", response_model=StoredRates, status_code=201)
def keep_pass_rates(order: RatesOrder, session: ReadSession, settings: SettingsOf) -> Json:
    """Store the pass rates of a run's training prompts for `data.pass_rates` of later runs."""
    require_run(session, order.run)
    rates = load_rates(session, order.run)
    try:
        return Json(store_rates(rates, settings.datasets_dir).model_dump(), 201)
    except OSError as error:
        raise CannotStore(error, f"DATASETS_DIR ({settings.datasets_dir})") from None


@router.get("/pass-rates/{sha256}", response_model=StoredRates)
def stored_pass_rates(sha256: str, settings: SettingsOf) -> Json:
    """Return the run that stored pass rates come from."""
    if not SHA256_PATTERN.fullmatch(sha256):
        raise NotFound("there are no such pass rates")
    try:
        rates = read_rates(settings.datasets_dir, sha256)
    except ValueError as error:
        raise NotFound(str(error)) from None
    return Json(describe_rates(sha256, rates).model_dump())


@router.get("/loss", response_model=LossSums)
def loss(session: ReadSession, run: RunId, step: Annotated[int, Query(ge=0, le=2**31 - 1)]) -> Json:
    """Return the loss of a step by stored group and completion, and the remainder up to the logged loss."""
    require_run(session, run)
    return Json(load_loss_sums(session, run, step))


@router.post("/what-if", response_model=WhatIf)
def compute_again(order: WhatIfOrder, request: Request, session: ReadSession) -> Json:
    """Compute a stored step's batch under other presets or settings, next to the run's own; nothing is
    stored.
    """
    take_time(WHAT_IF_SECONDS + 10)  # waiting for other requests and reading included
    require_run(session, order.run)
    allowance = OPERATOR_ALLOWANCE if request.state.role is Role.OPERATOR else VIEWER_ALLOWANCE
    return Json(compute_what_if(session, order, allowance))


@router.get("/{completion_id}/tokens", response_model=TokensResponse)
def tokens(completion_id: str, session: ReadSession) -> Json:
    """A completion token by token: strings and values such as log-probability and entropy."""
    return Json(load_tokens(session, completion_id))
