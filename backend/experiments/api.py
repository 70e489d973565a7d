"""HTTP routes of experiments."""

from typing import Annotated

from fastapi import BackgroundTasks, Query

from backend.experiments.launch import launch
from backend.experiments.plan import planned_experiment
from backend.experiments.schemas import (
    ExperimentDetail,
    ExperimentPage,
    ExperimentPlan,
    ExperimentRequest,
    LaunchedExperiment,
)
from backend.experiments.store import (
    count_experiments,
    experiments_json,
    find_experiment,
    list_experiments,
)
from backend.http.dependencies import LabOf, ReadSession, SettingsOf
from backend.http.idempotency import Key
from backend.http.paging import make_page
from backend.http.responses import Cursor, Json, Limit
from backend.http.routing import Router
from backend.runs.launch_checks import queue_check
from backend.runs.queue.doorbell import ring
from backend.runs.schemas import CheckRequest, RunItem
from backend.runs.store import find_run
from backend.storage.engine import open_read_session

router = Router(prefix="/api/v1/experiments", tags=["experiments"])

Text = Annotated[str, Query(max_length=200)]


@router.post("", status_code=201, response_model=LaunchedExperiment)
def create(body: ExperimentRequest, lab: LabOf, later: BackgroundTasks, key: Key) -> Json:
    """Queue all runs of an experiment, or none. A repeated request with the same Idempotency-Key changes
    nothing.
    """
    answer = launch(lab, body, key=key)
    later.add_task(ring, lab.settings)
    return Json(answer, 201, background=later)


@router.post("/plan", response_model=ExperimentPlan)
def plan_first(body: ExperimentRequest, session: ReadSession, settings: SettingsOf) -> Json:
    """Return the variants that this request would launch, with their errors, time and cost, without queueing
    them.
    """
    return Json(planned_experiment(session, settings, body))


@router.post("/check", status_code=202, response_model=RunItem, response_model_exclude_unset=True)
def check_first(body: CheckRequest, lab: LabOf, later: BackgroundTasks, key: Key) -> Json:
    """Queue a run without steps that checks a config before its launch; the result is the `check` of that
    run.

    It measures the policy's pass rate on training prompts, the expected share of groups with a learning
    signal, whether the grader accepts the reference answers, and the reward of texts without reasoning.
    """
    run_id = queue_check(lab, body, key=key)
    later.add_task(ring, lab.settings)
    with open_read_session(lab.sessions) as session:
        return Json(find_run(session, run_id), 202, background=later)


@router.get("", response_model=ExperimentPage)
def list_all(session: ReadSession, query: Text = "", limit: Limit = 50, cursor: Cursor = "") -> Json:
    """List experiments, newest first, optionally those whose name or variant name contains `query`."""
    text = query.strip()
    rows = list_experiments(session, text=text, limit=limit, cursor=cursor)
    items = experiments_json(session, rows[:limit])
    json_by_id = dict(zip((row.id for row in rows), items, strict=False))
    page = make_page(rows, limit, lambda row: json_by_id[row.id], lambda row: (row.created_at, row.id))
    return Json(page | {"total": None if cursor else count_experiments(session, text)})


@router.get("/{experiment_id}", response_model=ExperimentDetail)
def show(experiment_id: str, session: ReadSession) -> Json:
    """Return an experiment and the request that created it."""
    experiment = find_experiment(session, experiment_id)
    (item,) = experiments_json(session, [experiment])
    return Json(item | {"request": experiment.request})
