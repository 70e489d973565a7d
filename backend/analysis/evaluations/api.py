"""Routes for benchmark suites and for the results of evaluations."""

from typing import Annotated

from fastapi import Query

from backend.analysis.evaluations.results import load_evaluations
from backend.analysis.evaluations.schemas import EvaluationPage
from backend.base.errors import FieldError, InvalidRequest
from backend.config.suite_recipes import SUITE_RECIPES
from backend.http.dependencies import ReadSession
from backend.http.paging import split_list
from backend.http.responses import Json, Page
from backend.http.routing import Router
from backend.storage.run_lookup import require_run

router = Router(prefix="/api/v1", tags=["evaluations"])

MAX_RUNS = 50


@router.get("/suite-recipes", response_model=Page)
def suite_recipes() -> Json:
    """List benchmarks with license and commit. `config` contains the suite to add to a run's config."""
    items = [
        {
            "name": name,
            "title": recipe.title,
            "source": f"{recipe.source}, license: {recipe.licence}",
            "note": recipe.note,
            "config": {"suite": recipe.suite.model_dump(mode="json")},
        }
        for name, recipe in SUITE_RECIPES.items()
    ]
    return Json({"items": items, "next": None})


@router.get("/evaluations", response_model=EvaluationPage)
def evaluations(
    session: ReadSession,
    runs: Annotated[str, Query(min_length=1, max_length=8_000, description="Ids, separated by commas.")],
) -> Json:
    """List the results of held-out sets and suites of runs, including evaluations of their checkpoints."""
    run_ids = list(dict.fromkeys(split_list(runs)))
    if not 0 < len(run_ids) <= MAX_RUNS:
        reason = f"holds {len(run_ids)} runs; expected 1 to {MAX_RUNS}"
        raise InvalidRequest([FieldError("runs", reason)])
    for run_id in run_ids:
        require_run(session, run_id)
    return Json(load_evaluations(session, run_ids).model_dump(mode="json"))
