"""Checks before launch: runs without steps that test the problems, graders and rewards of a config."""

from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.base.errors import FieldError, InvalidConfig
from backend.base.settings import Settings
from backend.config.environments import ToolUse
from backend.config.evaluation import UNSCHEDULED_FIELDS
from backend.config.merge import grading_hash, merge
from backend.config.resources import ONE_PROCESS
from backend.config.rewards import PluginReward
from backend.config.run import RunConfig
from backend.config.served_rewards import CodeReward
from backend.http.dependencies import Lab
from backend.http.idempotency import find_previous, request_digest
from backend.runs.check_report import CheckReport
from backend.runs.checks import resolve_runnable
from backend.runs.events import add_event
from backend.runs.rows import run_row
from backend.runs.schemas import MAX_NAME_CHARACTERS, CheckRequest, ForkCheckRequest
from backend.storage.engine import insert_into, open_read_session
from backend.storage.live_workers import has_recent_heartbeat
from backend.storage.models import Run, Worker

DEFAULT_K, MAX_K = 32, 256
"""Default and maximum number of completions per prompt that a check samples."""


def queue_check(lab: Lab, request: CheckRequest, *, key: str) -> str:
    """Queue a check of the config and return its id, or the id of an earlier request with the same key."""
    digest = request_digest(["check", request.model_dump(mode="json")])
    with open_read_session(lab.sessions) as session:
        if earlier_id := find_previous(session, key, digest):
            return earlier_id
    config = resolve_runnable(lab.settings, request.base, request.variant, request.seed)
    config = check_config(lab.settings, config, request)
    name = str(request.variant.get("name") or config.preset or config.policy.name)
    row = run_row(f"check of {name}"[:MAX_NAME_CHARACTERS], "check", config)
    row |= {"tags": ["check"], "check_hash": grading_hash(config)}
    row |= {"idempotency_key": key or None, "request_hash": digest}
    with lab.sessions.begin() as session:
        refuse_programs(session, [config])
        statement = insert_into(session, Run).values(**row).on_conflict_do_nothing()
        check_id: str | None = session.scalar(statement.returning(Run.id))
        if check_id is None:  # another request with the same key was faster
            return find_previous(session, key, digest) or ""
        add_event(
            session, "lifecycle", "queued as a check before launch", run_id=check_id, data={"to": "queued"}
        )
        return check_id


def check_config(settings: Settings, config: RunConfig, size: CheckRequest | ForkCheckRequest) -> RunConfig:
    """Return the config of a run that checks `config`; raise InvalidConfig."""
    suites = [suite.model_dump() | UNSCHEDULED_FIELDS for suite in config.evaluation.suites]
    k = size.k or min(max(DEFAULT_K, config.sampling.group_size), MAX_K)
    changes: dict[str, Any] = {
        "steps": 0,
        "evaluation": {"every": 1, "prompts": size.prompts, "k": k, "effort": False, "suites": suites},
        "checkpointing": {"best_by": ""},
        "optimizer": {"warmup_steps": 0},
        "resources": ONE_PROCESS,
    }
    return resolve_runnable(settings, merge(config.model_dump(mode="json"), changes))


def refuse_programs(session: Session, configs: Iterable[RunConfig]) -> None:
    """Raise InvalidConfig if a config runs programs and every live worker reports that it cannot run any."""
    stats = session.scalars(select(Worker.stats).where(has_recent_heartbeat())).all()
    refusal_reasons = [slot.get("sandbox", {}).get("runs_no_programs", "") for slot in stats]
    if not refusal_reasons or not all(refusal_reasons):
        return
    fields = {field: kind for config in configs for field, kind in _running_programs(config)}
    reason = f"and no worker that is running can confine them: {refusal_reasons[0]}"
    if fields:
        raise InvalidConfig([FieldError(field, f"runs {kind}, {reason}") for field, kind in fields.items()])


def _running_programs(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Yield the config fields that run programs of the policy or plugins on its texts, with a description."""
    for number, term in enumerate(config.rewards):
        if isinstance(term, CodeReward):
            yield f"rewards.{number}.name", "programs of the policy"
        elif isinstance(term, PluginReward):
            yield f"rewards.{number}.name", "plugins on texts of the policy"
    if isinstance(config.environment, ToolUse) and "python" in config.environment.tools:
        yield "environment.tools", "programs of the policy"


def refuse_failed(session: Session, configs: Iterable[RunConfig]) -> None:
    """Raise InvalidConfig if the newest check of a config's problems and graders found wrong references."""
    hashes = dict.fromkeys(grading_hash(config) for config in configs)
    if errors := [error for config_hash in hashes for error in _failures(session, config_hash)]:
        raise InvalidConfig(errors)


def _failures(session: Session, config_hash: str) -> Iterator[FieldError]:
    newest = (
        select(Run.name, Run.check_report)
        .where(Run.check_hash == config_hash, Run.status == "finished")
        .where(Run.deleted_at.is_(None), Run.deleting_at.is_(None))
        .order_by(Run.finished_at.desc(), Run.id.desc())
        .limit(1)
    )
    check = session.execute(newest).one_or_none()
    if check is None or not check.check_report:
        return
    references = CheckReport.model_validate(check.check_report).references
    if references.wrong:
        first = references.examples[0]
        yield FieldError(
            "ignore_check",
            f"is false, but {check.name!r} found that the grader calls {references.wrong} of "
            f"{references.checked} reference answers wrong, e.g. {_shorten(first.answer)!r} to "
            f"{_shorten(first.prompt)!r}: fix the data or the grader and check again, "
            "or set ignore_check to true",
        )


def _shorten(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:99]}…"
