"""Database queries for single runs, their attempts and their output."""

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import orjson
from sqlalchemy import Row, select, tuple_, update
from sqlalchemy.orm import Session

from backend.base.errors import RunNotFound
from backend.base.text import clean_text
from backend.http.paging import iso_time
from backend.runs.cost import sum_cost
from backend.runs.lifecycle import locked_run, request_action
from backend.runs.list import run_columns
from backend.runs.pushed import end_pushed
from backend.storage.engine import db_now, insert_into
from backend.storage.models import NOT_BEGUN, Attempt, LogChunk, Run
from backend.storage.run_lookup import require_run


def append_log(session: Session, run_id: str, attempt: int, number: int, text: str) -> None:
    """Store chunk `number` of the trainer's output, unless it is already stored."""
    values = {"run_id": run_id, "attempt": attempt, "number": number, "text": clean_text(text)}
    session.execute(insert_into(session, LogChunk).values(**values).on_conflict_do_nothing())


def run_json(run_row: Row[Any], *, attempts: Sequence[Attempt] | None = None) -> dict[str, Any]:
    """Return a run as the HTTP API shows it, as described by `schemas.RunItem`."""
    # Reading a column of a Row by name takes twenty times as long.
    row = SimpleNamespace(**dict(zip(run_row._fields, run_row, strict=True)))
    document = {
        "id": row.id,
        "name": row.name,
        "experiment": row.experiment_id,
        "experiment_name": row.experiment_name,
        "variant": row.variant,
        "seed": row.seed,
        "config_hash": row.config_hash,
        "status": row.status,
        "reason": row.reason,
        "requested_action": row.requested_action,
        "priority": row.priority,
        "archived": row.archived_at is not None,
        "deleted": row.deleted_at is not None,
        "steps": row.steps,
        "last_step": row.last_step,
        "summary": orjson.Fragment(row.summary),
        "tags": row.tags,
        "notes": row.notes,
        "colour": row.colour,
        "parent_run": row.parent_run,
        "fork_step": row.fork_step,
        "origin": row.origin,
        "origin_file": row.origin_file,
        "writer": row.writer,
        "seen_at": None if row.writer is None else iso_time(row.progress_at),
        **verdict_json(row),
        "is_check": row.check_hash is not None,
        **{
            name: iso_time(getattr(row, name))
            for name in ("created_at", "queued_at", "started_at", "finished_at")
        },
    }
    if hasattr(row, "config"):
        document["config"] = row.config
    if attempts is not None:
        document["attempts"] = [attempt_json(attempt) for attempt in attempts]
    return document


def verdict_json(row: Any) -> dict[str, Any]:
    """Return the stored verdict on a run, as described by `schemas.Judged`."""
    onset = {"healthy": row.onset_healthy, "sick": row.onset_sick}
    return {
        "verdict": row.verdict,
        "onset": None if row.onset_sick is None else onset,
        "cause": row.cause,
        "judged_step": row.judged_step,
    }


def attempt_json(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt as the HTTP API shows it."""
    return {
        "number": attempt.number,
        "from_step": None if attempt.from_step == NOT_BEGUN else attempt.from_step,
        "worker": attempt.worker_id,
        "host": attempt.host,
        "pid": attempt.pid,
        "device": attempt.device,
        "devices": attempt.devices,
        "nodes": attempt.nodes,
        "slot_price": attempt.slot_price,
        "judge_cost": attempt.judge_cost,
        "currency": attempt.currency,
        "versions": attempt.versions,
        "started_at": iso_time(attempt.started_at),
        "ended_at": iso_time(attempt.ended_at),
        "outcome": attempt.outcome,
    }


def find_run(session: Session, run_id: str) -> dict[str, Any]:
    """Return a run with its config and attempts; raise RunNotFound."""
    columns = run_columns().add_columns(Run.config, Run.check_report)
    row = session.execute(columns.where(Run.id == run_id, Run.deleting_at.is_(None))).one_or_none()
    if row is None:
        raise RunNotFound(run_id)
    attempts = load_attempts(session, [run_id]).get(run_id, [])
    document = run_json(row, attempts=attempts)
    document["cost"] = sum_cost(attempts, session.scalar(select(db_now())) or 0.0)
    if row.check_report:
        document["check"] = row.check_report
    if row.parent_run is not None:
        document["parent_name"] = session.scalar(select(Run.name).where(Run.id == row.parent_run))
    return document


def load_attempts(session: Session, run_ids: Iterable[str]) -> dict[str, list[Attempt]]:
    """Return the attempts of the given runs by run id, in order."""
    query = select(Attempt).where(Attempt.run_id.in_(list(run_ids))).order_by(Attempt.run_id, Attempt.number)
    attempts: dict[str, list[Attempt]] = {}
    for attempt in session.scalars(query):
        attempts.setdefault(attempt.run_id, []).append(attempt)
    return attempts


def change_run(session: Session, run_id: str, changes: Mapping[str, Any]) -> None:
    """Change the name, tags, notes, priority or archived state of a run."""
    require_run(session, run_id)
    values = dict(changes)
    if "archived" in values:
        values["archived_at"] = db_now() if values.pop("archived") else None
    if values:
        session.execute(update(Run).where(Run.id == run_id).values(**values))


def trash_run(session: Session, run_id: str) -> None:
    """Move a run to the trash.

    A running run is asked to stop, or ends at once if it is pushed. A queued run does not start.
    """
    run = locked_run(session, run_id)
    if run.status == "running" and run.writer is not None:
        end_pushed(session, run, "stopped", "moved to the trash")
    elif run.status == "running":
        request_action(session, run_id, "stop")
    if run.deleted_at is None:
        session.execute(update(Run).where(Run.id == run_id).values(deleted_at=db_now()))


def restore_run(session: Session, run_id: str) -> None:
    """Restore a run from the trash; if it is still running, withdraw its pending stop."""
    run = locked_run(session, run_id)
    if run.status == "running" and run.requested_action == "stop" and run.deleted_at is not None:
        request_action(session, run_id, "")
    session.execute(update(Run).where(Run.id == run_id).values(deleted_at=None))


def load_log_chunks(
    session: Session,
    run_id: str,
    *,
    attempt: int | None,
    after_key: Sequence[int] | None,
    limit: int,
    backwards: bool,
) -> Sequence[LogChunk]:
    """Return chunks of output, oldest or newest first, and one additional chunk."""
    sort_key = tuple_(LogChunk.attempt, LogChunk.number)
    query = select(LogChunk).where(LogChunk.run_id == run_id)
    if attempt is not None:
        query = query.where(LogChunk.attempt == attempt)
    if after_key is not None:
        query = query.where(sort_key < tuple(after_key) if backwards else sort_key > tuple(after_key))
    order = (
        (LogChunk.attempt.desc(), LogChunk.number.desc())
        if backwards
        else (LogChunk.attempt, LogChunk.number)
    )
    return session.scalars(query.order_by(*order).limit(limit + 1)).all()
