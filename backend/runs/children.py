"""Create runs from another run: clones of its config, and forks and evaluations of its checkpoints."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from backend.base.errors import Conflict, FieldError, InvalidConfig, InvalidRequest, RunNotFound
from backend.base.settings import Settings
from backend.config.evaluation import UNSCHEDULED_FIELDS
from backend.config.merge import grading_hash, merge
from backend.config.resources import ONE_PROCESS
from backend.config.run import RunConfig
from backend.http.dependencies import Lab
from backend.http.idempotency import find_previous, request_digest
from backend.runs.checkpoints import load_checkpoints
from backend.runs.checks import resolve_runnable
from backend.runs.events import add_event
from backend.runs.launch_checks import check_config, refuse_failed, refuse_programs
from backend.runs.lifecycle import locked_run
from backend.runs.naming import new_run_names
from backend.runs.origin import refuse_imported
from backend.runs.rows import run_row
from backend.runs.schemas import (
    MAX_NAME_CHARACTERS,
    CloneRequest,
    EvaluationRequest,
    ForkCheckRequest,
    ForkRequest,
)
from backend.storage.engine import insert_into, open_read_session
from backend.storage.models import Run

ChildRequest = CloneRequest | ForkRequest | EvaluationRequest | ForkCheckRequest


_DEEDS = {
    CloneRequest: "cloned",
    ForkRequest: "forked",
    EvaluationRequest: "evaluated",
    ForkCheckRequest: "forked",
}


class ChildRun(NamedTuple):
    """A run that is about to be queued."""

    name: str
    """Name of the run; empty for a new random name."""
    variant: str
    config: RunConfig
    tags: list[Any]
    reason: str
    fork_step: int | None = None
    """Step of the parent's checkpoint to start from or evaluate; None if the run starts from scratch."""
    check_hash: str | None = None
    """`grading_hash` of a check before launch; None for any other run."""


def queue_child(lab: Lab, run_id: str, request: ChildRequest, *, key: str) -> str:
    """Check the config outside a write transaction, insert the run and return its id.

    A repeated request with the same key returns the id of the same run.
    """
    digest = request_digest([run_id, type(request).__name__, request.model_dump(mode="json")])
    with open_read_session(lab.sessions) as session:
        if earlier_id := find_previous(session, key, digest):
            return earlier_id
        parent = session.get(Run, run_id)
        if parent is None or parent.deleting_at is not None:
            raise RunNotFound(run_id)
        refuse_imported(parent, _DEEDS[type(request)])
        step = 0 if isinstance(request, CloneRequest) else _find_step(session, parent, request.step)
    match request:
        case CloneRequest():
            child = _clone(lab.settings, parent, request)
        case ForkRequest():
            child = _fork(lab.settings, parent, request)
        case EvaluationRequest():
            child = _evaluation(lab.settings, parent, request, step)
        case ForkCheckRequest():
            child = _fork_check(lab.settings, parent, request, step)
    with lab.sessions.begin() as session:
        if (
            isinstance(request, CloneRequest | ForkRequest)
            and not request.ignore_check
            and not child.check_hash
        ):
            refuse_failed(session, [child.config])
        refuse_programs(session, [child.config])
        child_id = _insert_run(session, run_id, child, key=key, digest=digest)
        # None means that another request with the same key was faster.
        return child_id or find_previous(session, key, digest) or ""


def _clone(settings: Settings, parent: Run, request: CloneRequest) -> ChildRun:
    seed = request.seed
    if seed is None and "seed" not in request.changes:
        seed = parent.seed
    config = resolve_runnable(settings, merge(parent.config, request.changes), None, seed)
    check_hash = grading_hash(config) if parent.check_hash else None
    reason = f"a clone of {parent.name}"
    return ChildRun(request.name or "", parent.variant, config, parent.tags, reason, check_hash=check_hash)


def forked_config(settings: Settings, parent: Run, step: int, changes: Mapping[str, Any]) -> RunConfig:
    """Return the config of a fork at a step; raise InvalidConfig for changes that a fork cannot have."""
    config = resolve_runnable(settings, merge(parent.config, changes))
    refuse_as_fork(parent, step, config)
    return config


def refuse_as_fork(parent: Run, step: int, config: RunConfig) -> None:
    """Raise InvalidConfig for a config that a fork of this run at this step cannot have."""
    if errors := [*_check_same_policy(parent, config), *_too_few_steps(parent, config, step)]:
        raise InvalidConfig(errors)


def _fork(settings: Settings, parent: Run, request: ForkRequest) -> ChildRun:
    config = forked_config(settings, parent, request.step, request.changes)
    reason = f"a fork of {parent.name} at step {request.step}"
    return ChildRun(request.name or "", parent.variant, config, parent.tags, reason, fork_step=request.step)


def _check_same_policy(parent: Run, config: RunConfig) -> Iterator[FieldError]:
    """Yield an error for each change to the policy: a fork continues with the weights of its parent."""
    policy = RunConfig.model_validate(parent.config).policy.model_dump(mode="json")
    for name, new_value in config.policy.model_dump(mode="json").items():
        if new_value != (old_value := policy[name]):
            reason = (
                f"is {new_value!r}, but a fork continues the policy of {parent.name}: expected {old_value!r}"
            )
            yield FieldError(f"policy.{name}", reason)


def _too_few_steps(parent: Run, config: RunConfig, step: int) -> Iterator[FieldError]:
    if config.steps <= step:
        reason = f"is {config.steps}, but the fork starts after step {step} of {parent.name}"
        yield FieldError("steps", f"{reason}: expected at least {step + 1}")


def _evaluation(settings: Settings, parent: Run, request: EvaluationRequest, step: int) -> ChildRun:
    size = request.model_dump(include={"prompts", "k", "effort"})
    changes: dict[str, Any] = {
        "steps": 0,
        "evaluation": {"every": int(request.held_out), "suites": _suites(parent, request), **size},
        "optimizer": {"warmup_steps": 0},
        "checkpointing": {"best_by": ""},
        "resources": ONE_PROCESS,
    }
    if request.problems is not None:
        changes["problems"] = request.problems
    config = resolve_runnable(settings, merge(parent.config, changes), None, parent.seed)
    name, reason = _child_name(parent.name, step), f"an evaluation of {parent.name} at step {step}"
    return ChildRun(name, "evaluation", config, ["evaluation"], reason, fork_step=step)


def _suites(parent: Run, request: EvaluationRequest) -> list[dict[str, Any]]:
    """Return the requested suites without a schedule, so that they run at once; raise InvalidRequest."""
    if not request.held_out and not request.suites:
        reason = "is empty and held_out is false: nothing would be evaluated"
        raise InvalidRequest([FieldError("suites", reason)])
    suite_by_name = {suite["name"]: suite for suite in parent.config.get("evaluation", {}).get("suites", ())}
    for number, requested_suite in enumerate(request.suites):
        if isinstance(requested_suite, str) and requested_suite not in suite_by_name:
            reason = (
                f"is {requested_suite!r}; {parent.name} has the suites: {', '.join(suite_by_name) or 'none'}"
            )
            raise InvalidRequest([FieldError(f"suites.{number}", reason)])
    suites = [suite_by_name[suite] if isinstance(suite, str) else suite for suite in request.suites]
    return [suite | UNSCHEDULED_FIELDS for suite in suites]


def _fork_check(settings: Settings, parent: Run, request: ForkCheckRequest, step: int) -> ChildRun:
    config = resolve_runnable(settings, merge(parent.config, request.changes))
    if errors := [*_check_same_policy(parent, config)]:
        raise InvalidConfig(errors)
    config = check_config(settings, config, request)
    name = _child_name(f"check of {parent.name}", step)
    reason = f"a check before a fork of {parent.name} at step {step}"
    return ChildRun(name, "check", config, ["check"], reason, fork_step=step, check_hash=grading_hash(config))


def _child_name(name: str, step: int) -> str:
    return f"{name[: MAX_NAME_CHARACTERS - 20]}, step {step}"


def _find_step(session: Session, parent: Run, step: int | None) -> int:
    """Return the requested step if it has a checkpoint, or the step of the newest checkpoint.

    Raise InvalidRequest if there is no such checkpoint, and Conflict if the parent is in the trash.
    """
    if parent.deleted_at is not None:
        raise Conflict(f"run {parent.id!r} is in the trash: restore it first")
    steps = [row.step for row in load_checkpoints(session, parent.id)]
    if steps and (step is None or step in steps):
        return steps[0] if step is None else step
    description = "checkpoint" if step is None else f"checkpoint of step {step}"
    listed_steps = ", ".join(map(str, sorted(set(steps)))) or "none"
    reason = f"{parent.name} has no {description}; it has checkpoints of steps: {listed_steps}"
    raise InvalidRequest([FieldError("step", reason)])


def _insert_run(session: Session, parent: str, child: ChildRun, *, key: str, digest: str) -> str | None:
    """Insert the run and its first event, and return its id; return None if a run with this key exists.

    A child does not belong to the experiment of its parent.
    """
    run = locked_run(session, parent)
    if child.fork_step is not None:
        _find_step(session, run, child.fork_step)  # old checkpoints are removed while a run trains
    name = child.name or new_run_names(session, 1)[0]
    row = run_row(name, child.variant, child.config)
    row |= {"tags": child.tags, "parent_run": parent, "fork_step": child.fork_step}
    row |= {"check_hash": child.check_hash}
    row |= {"idempotency_key": key or None, "request_hash": digest}
    statement = insert_into(session, Run).values(**row).on_conflict_do_nothing()
    child_id: str | None = session.scalar(statement.returning(Run.id))
    if child_id is not None:
        add_event(session, "lifecycle", f"queued as {child.reason}", run_id=child_id, data={"to": "queued"})
    return child_id
