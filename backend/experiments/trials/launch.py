"""Launch a trial: queue forks of one checkpoint as one experiment, all of them or none."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.base.errors import Conflict, InvalidConfig
from backend.config.merge import nest_paths
from backend.config.run import RunConfig
from backend.experiments.launch import PlannedRun, enter_experiment
from backend.experiments.trials.fork_point import ForkPoint, refuse_trash
from backend.experiments.trials.plan import TrialPlan, plan_trial
from backend.experiments.trials.schemas import NO_CHANGE, REPEAT, TrialRequest
from backend.http.dependencies import Lab
from backend.http.idempotency import find_previous, request_digest
from backend.runs.checkpoints import load_checkpoints
from backend.runs.events import add_event
from backend.runs.lifecycle import locked_run
from backend.storage.engine import new_id, open_read_session
from backend.storage.models import Run, Trial

MAX_NAME = 150
"""Maximum number of characters of the run's name in the name of the experiment."""


def launch_trial(lab: Lab, run_id: str, request: TrialRequest, *, key: str) -> str:
    """Queue the runs of a trial and return its id; a repeated request with the same key returns the same id.

    Raise InvalidConfig with the errors of the plan, and Conflict if there is nothing to try or the checkpoint
    has been deleted in the meantime.
    """
    digest = request_digest([run_id, "trial", request.model_dump(mode="json")])
    with open_read_session(lab.sessions) as session:
        if earlier_id := find_previous(session, key, digest):
            return find_trial(session, earlier_id)
        plan = plan_trial(session, lab.settings, run_id, request)
    if plan.errors or plan.base is None:
        raise InvalidConfig(list(plan.errors))
    planned_runs = list(_plan_runs(plan, plan.base))
    row = _experiment_row(plan) | {"request_hash": digest, "idempotency_key": key or None}
    with lab.sessions.begin() as session:
        run = lock_runs(session, run_id, plan.point)
        experiment_id = enter_experiment(session, row, planned_runs, {"tags": ["trial"]})
        if experiment_id is None:  # another request with the same key was faster
            return find_trial(session, find_previous(session, key, digest) or "")
        trial = Trial(id=new_id(), experiment_id=experiment_id, **_trial_columns(plan))
        session.add(trial)
        message = f"a trial of {len(planned_runs)} runs was queued"
        add_event(
            session, "trial", message, run_id=run.id, data={"trial": trial.id, "experiment": experiment_id}
        )
        return trial.id


def find_trial(session: Session, experiment_id: str) -> str:
    """Return the id of the trial of an experiment; raise Conflict if the trial was deleted."""
    trial_id = session.scalar(select(Trial.id).where(Trial.experiment_id == experiment_id))
    if trial_id is None:
        raise Conflict("this Idempotency-Key belongs to a trial that has been deleted: choose a new one")
    return trial_id


def _plan_runs(plan: TrialPlan, base: RunConfig) -> Iterator[PlannedRun]:
    """Yield the repetition, and then all arms of each seed, so that they can be compared early."""
    run, point = plan.run, plan.point
    parent = point.run or run.id
    step = point.step if point.run else None
    arms = plan.arms[:1] if plan.one_by_one else plan.arms
    configs = {NO_CHANGE: base} | {arm.name: arm.config for arm in arms if arm.config is not None}
    yield planned_run(run, REPEAT, base, run.seed, parent, step)
    for seed in plan.seeds:
        for variant, config in configs.items():
            yield planned_run(run, variant, config, seed, parent, step)


def planned_run(
    run: Run, variant: str, config: RunConfig, seed: int, parent: str, step: int | None
) -> PlannedRun:
    """Return a run of a trial of `run` that forks from a step of `parent`, or starts from scratch if it is
    None.
    """
    reason = f"queued for a trial of {run.name}: {variant}"
    return PlannedRun(variant, seed, config.with_(seed=seed), parent, step, reason)


def _experiment_row(plan: TrialPlan) -> dict[str, Any]:
    """Return the row of the experiment, whose request describes its variants."""
    name = f"Trial of {plan.run.name[:MAX_NAME]}"
    variants = [{"name": REPEAT}, {"name": NO_CHANGE}]
    variants += [{**nest_paths(arm.changes), "name": arm.name} for arm in plan.arms]
    base = plan.base.model_dump(mode="json") if plan.base else {}
    request = {"name": name, "base": base, "variants": variants, "seeds": list(plan.seeds)}
    return {"id": new_id(), "name": name, "request": request}


def _trial_columns(plan: TrialPlan) -> dict[str, Any]:
    onset = plan.diagnosis.onset
    return {
        "run_id": plan.run.id,
        "initial_verdict": plan.diagnosis.outcome.verdict,
        "cause": plan.cause.finding.cause if plan.cause else "",
        "onset_healthy": onset.healthy if onset else None,
        "onset_sick": onset.sick if onset else None,
        "fork_run": plan.point.run,
        "fork_step": plan.point.step,
        "due_step": plan.point.due_step,
        "words": plan.point.words,
        "steps": plan.steps,
        "seeds": list(plan.seeds),
        "arms": [
            {"name": arm.name, "changes": arm.changes, "is_pending": plan.one_by_one and number > 0}
            for number, arm in enumerate(plan.arms)
        ],
    }


def lock_runs(session: Session, run_id: str, point: ForkPoint) -> Run:
    """Return the run, with locks on it and the run of the checkpoint.

    Raise Conflict if the checkpoint has been deleted or one of the runs is in the trash.
    """
    runs = {id_: locked_run(session, id_) for id_ in sorted({run_id, point.run or run_id})}
    for run in runs.values():
        refuse_trash(run)
    if point.run and all(row.step != point.step for row in load_checkpoints(session, point.run)):
        raise Conflict(
            f"the checkpoint of step {point.step} was removed in the meantime: plan the trial again"
        )
    return runs[run_id]
