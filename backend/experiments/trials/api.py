"""HTTP routes of trials."""

from typing import Annotated, Any

from fastapi import BackgroundTasks, Query

from backend.analysis.diagnosis.findings import RankedCause
from backend.experiments.trials.launch import launch_trial
from backend.experiments.trials.plan import TrialPlan, estimate_price, healthy_runs_needed, plan_trial
from backend.experiments.trials.schemas import TrialItem, TrialPage, TrialPlanItem, TrialRequest
from backend.experiments.trials.store import find_trial, list_trials, trial_json
from backend.http.dependencies import LabOf, ReadSession, SettingsOf
from backend.http.idempotency import Key
from backend.http.paging import make_page
from backend.http.responses import Cursor, Json, Limit
from backend.http.routing import Router
from backend.runs.queue.doorbell import ring
from backend.storage.engine import open_read_session

router = Router(prefix="/api/v1", tags=["trials"])

Id = Annotated[str, Query(max_length=200)]


@router.post("/runs/{run_id}/trials/plan", response_model=TrialPlanItem)
def plan(run_id: str, session: ReadSession, settings: SettingsOf, body: TrialRequest | None = None) -> Json:
    """Plan a trial without starting it: first and last step, arms, cost and errors."""
    trial_plan = plan_trial(session, settings, run_id, body or TrialRequest())
    return Json(_plan_json(trial_plan) | {"price": estimate_price(session, settings, trial_plan)})


@router.post("/runs/{run_id}/trials", status_code=201, response_model=TrialItem)
def create(
    run_id: str, lab: LabOf, later: BackgroundTasks, key: Key, body: TrialRequest | None = None
) -> Json:
    """Queue a trial as one experiment, all runs or none.

    These are a repetition of the run with its own seed, and for each other seed a run without change and a
    run of each arm.
    """
    trial_id = launch_trial(lab, run_id, body or TrialRequest(), key=key)
    later.add_task(ring, lab.settings)
    with open_read_session(lab.sessions) as session:
        return Json(trial_json(session, find_trial(session, trial_id)), 201, background=later)


@router.get("/trials", response_model=TrialPage)
def list_all(
    session: ReadSession, run: Id = "", experiment: Id = "", limit: Limit = 20, cursor: Cursor = ""
) -> Json:
    """List trials with their current verdicts, newest first, optionally those of a run or an experiment."""
    rows = list_trials(session, run=run, experiment=experiment, limit=limit, cursor=cursor)
    return Json(make_page(rows, limit, lambda row: trial_json(session, row), lambda row: (row.id,)))


def _plan_json(plan: TrialPlan) -> dict[str, Any]:
    return {
        "run": plan.run.id,
        "verdict": plan.diagnosis.outcome.verdict,
        "cause": plan.cause.finding.cause if plan.cause else "",
        "title": plan.cause.finding.title if plan.cause else "",
        "remedy": _remedy(plan.cause),
        "onset": plan.diagnosis.onset and plan.diagnosis.onset._asdict(),
        "alarm": plan.alarm,
        "fork": plan.point._asdict(),
        "steps": plan.steps,
        "seeds": list(plan.seeds),
        "repeat_seed": plan.run.seed,
        "arms": [{"name": arm.name, "changes": arm.changes} for arm in plan.arms],
        "one_by_one": plan.one_by_one,
        "heals_in": healthy_runs_needed(len(plan.seeds)),
        "notes": list(plan.notes),
        "errors": [error._asdict() for error in plan.errors],
    }


def _remedy(cause: RankedCause | None) -> dict[str, Any] | None:
    return cause.remedy._asdict() if cause else None
