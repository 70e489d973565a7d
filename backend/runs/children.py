"""Runs that come from another run: clones of its config, and evaluations of one of its checkpoints."""

from typing import Any, NamedTuple

from sqlalchemy import insert
from sqlalchemy.orm import Session

from backend.config.merge import merge
from backend.config.run import RunConfig
from backend.database import reading
from backend.depends import Lab
from backend.errors import Conflict, RunNotFound
from backend.experiments.checks import runnable
from backend.experiments.launch import run_row
from backend.experiments.naming import new_run_names
from backend.models import Run
from backend.runs.checkpoints import checkpoints_of
from backend.runs.events import add_event
from backend.runs.lifecycle import locked_run
from backend.runs.schemas import CloneRequest, EvaluationRequest
from backend.settings import Settings


class Child(NamedTuple):
    """A run that is about to be queued."""

    name: str
    """Empty: one that no run has yet."""
    variant: str
    config: RunConfig
    tags: list[Any]
    reason: str
    fork_step: int | None = None
    """Step of the parent's checkpoint that it begins with; None: it begins anew."""


def queue_child(lab: Lab, run_id: str, request: CloneRequest | EvaluationRequest) -> str:
    """Check the config while nobody waits for the database, then enter the run; its id."""
    with reading(lab.sessions) as session:
        parent = session.get(Run, run_id)
        if parent is None:
            raise RunNotFound(run_id)
        step = 0 if isinstance(request, CloneRequest) else _step(session, run_id, request.step)
    if isinstance(request, CloneRequest):
        child = _clone(lab.settings, parent, request)
    else:
        child = _evaluation(lab.settings, parent, request, step)
    with lab.sessions.begin() as session:
        return _enter(session, run_id, child)


def _clone(settings: Settings, parent: Run, request: CloneRequest) -> Child:
    seed = parent.seed if request.seed is None else request.seed
    config = runnable(settings, merge(parent.config, request.changes), None, seed)
    return Child(request.name or "", parent.variant, config, parent.tags, f"a clone of {parent.name}")


def _evaluation(settings: Settings, parent: Run, request: EvaluationRequest, step: int) -> Child:
    changes: dict[str, Any] = {
        "steps": 0,
        "evaluation": {"every": 1, "prompts": request.prompts, "k": request.k},
        "optimizer": {"warmup_steps": 0},
    }
    if request.problems is not None:
        changes["problems"] = request.problems
    config = runnable(settings, merge(parent.config, changes), None, parent.seed)
    name, reason = f"{parent.name}, step {step}", f"an evaluation of {parent.name} at step {step}"
    return Child(name, "evaluation", config, ["evaluation"], reason, fork_step=step)


def _step(session: Session, run_id: str, wanted: int | None) -> int:
    """The step of the checkpoint that is asked for, or of the newest; Conflict when it is not there."""
    known = [row.step for row in checkpoints_of(session, run_id)]
    if known and (wanted is None or wanted in known):
        return known[0] if wanted is None else wanted
    which = "checkpoint" if wanted is None else f"checkpoint of step {wanted}"
    there = ", ".join(map(str, known)) or "none"
    raise Conflict(f"run {run_id!r} has no {which}; it has checkpoints of steps: {there}")


def _enter(session: Session, parent: str, child: Child) -> str:
    """The row and its first line of history; a child is no seed of its parent's experiment."""
    locked_run(session, parent)
    if child.fork_step is not None:
        _step(session, parent, child.fork_step)  # old checkpoints are removed while a run trains
    name = child.name or new_run_names(session, 1)[0]
    row = run_row(name, child.variant, child.config)
    row |= {"tags": child.tags, "parent_run": parent, "fork_step": child.fork_step}
    session.execute(insert(Run).values(**row))
    data = {"to": "queued"}
    add_event(session, "lifecycle", f"queued as {child.reason}", run_id=row["id"], data=data)
    return str(row["id"])
