"""The lifecycle of a run: its status transitions and who may make them.

    queued ──claim──> running ──┬──> finished | stopped | paused | failed     (reported by the trainer)
      ^                         └──> queued                                   (its worker ends or is lost)
      ├── resume ── paused | stopped
      └── retry ─── failed | stopped

The database is the only source of truth. Every transition is a conditional UPDATE together with an event.
`run.attempt` is the fencing token: a claim increments it, and writes for an older attempt are refused
(`Fenced`). Leases are compared with the database's clock only. Functions take a Session and never commit.
"""

from collections.abc import Collection
from typing import Any, Literal, NamedTuple, cast

from sqlalchemy import CursorResult, and_, case, exists, or_, select, update
from sqlalchemy.orm import Session

from backend.base.errors import Conflict, Fenced, MoveForbidden, RunNotFound
from backend.base.redaction import redact
from backend.base.text import clean_text
from backend.runs.events import add_event
from backend.runs.leases import Lease, fence, is_lost_lease
from backend.runs.origin import refuse_imported
from backend.runs.pushed import end_pushed, is_unresponsive
from backend.storage.engine import db_now, now_or_later
from backend.storage.models import Attempt, Run

RequestedAction = Literal["stop", "pause", "prune", ""]
End = Literal["finished", "stopped", "paused", "failed"]

STATUSES = ("queued", "running", "paused", "finished", "stopped", "failed")
ENDED_STATUSES = ("finished", "stopped", "failed")

MOVES: dict[str, tuple[str, ...]] = {
    "queued": ("running", "stopped", "paused", "failed"),
    "running": ("finished", "stopped", "paused", "failed", "queued", "running"),
    "paused": ("queued", "stopped"),
    "stopped": ("queued",),
    "failed": ("queued",),
    "finished": (),
}
"""Allowed transitions by status; running to running is the claim of a run whose worker was lost."""

MAX_FAILURES = 3
"""Number of trainer failures in a row, without a new checkpoint in between, after which a run fails."""

BACKOFF_SECONDS = (1.0, 5.0, 20.0)
"""Delay in seconds before a failed run starts again, by number of consecutive failures."""

LOST_REASON = "the worker was lost"

PRUNED_REASON = "pruned by its search"
"""Reason of a run that a search has stopped; its events contain the details."""

STATUS_BY_REQUEST: dict[str, tuple[Literal["stopped", "paused"], str]] = {
    "stop": ("stopped", "stopped by the user"),
    "prune": ("stopped", PRUNED_REASON),
    "pause": ("paused", "paused by the user"),
}
"""New status and reason of a run that ends because of a request."""


class Claim(NamedTuple):
    """A run that a worker has claimed."""

    run_id: str
    attempt: int
    config: dict[str, Any]
    worker_id: str = ""
    devices: int = 1
    """Number of devices on each node that the run trains on."""
    nodes: int = 1
    """Number of nodes that the run trains on."""


def claim_run(
    session: Session,
    worker_id: str,
    host: str,
    *,
    lease_seconds: float = 60.0,
    lost_leases: Collection[Lease] = (),
    room: int = 1,
    max_devices: int = 1,
    nodes: int = 1,
    **facts: Any,
) -> Claim | None:
    """Claim the first run that is queued or whose lease is in `lost_leases`; return None if nothing can be
    claimed.

    Only runs that need at most `max_devices` are considered, the number of devices of an idle worker. If the
    first of them needs more devices than the `room` that is free now, nothing is claimed, so that smaller
    runs behind it do not take the devices that it waits for. A single worker claims runs of one node; the
    leader of a complete group of `nodes` workers claims runs that need exactly that number. `facts` are
    additional columns of the attempt, such as the price and the currency of the slot.
    """
    candidate = session.execute(_next_claimable(lost_leases, max_devices, nodes)).one_or_none()
    if candidate is None or candidate.devices > room:
        return None
    attempt = candidate.attempt + 1
    values = {
        "status": "running",
        "reason": "",
        "attempt": attempt,
        "worker_id": worker_id,
        "lease_until": db_now() + lease_seconds,
        "progress_at": db_now(),
    }
    statement = update(Run).where(
        Run.id == candidate.id, Run.attempt == candidate.attempt, Run.status == candidate.status
    )
    if not _update_once(session, statement.values(**values)):
        return None
    session.execute(
        update(Run).where(Run.id == candidate.id, Run.started_at.is_(None)).values(started_at=db_now())
    )
    if candidate.status == "running":
        _close_attempt(session, candidate.id, candidate.attempt, LOST_REASON)
        _note(session, candidate.id, candidate.attempt, "running", "queued", LOST_REASON, level="warning")
    facts |= {"devices": candidate.devices, "nodes": nodes}
    session.add(Attempt(run_id=candidate.id, number=attempt, worker_id=worker_id, host=host, **facts))
    session.flush()
    _note(
        session, candidate.id, attempt, "queued", "running", f"attempt {attempt} on {host}", worker=worker_id
    )
    return Claim(candidate.id, attempt, candidate.config, worker_id, candidate.devices, nodes)


def claimable_condition(lost_leases: Collection[Lease] = ()) -> Any:
    """Return the SQL condition that a worker may claim the run now."""
    waits = or_(Run.status == "queued", is_lost_lease(lost_leases))
    return and_(Run.run_after <= db_now(), Run.deleted_at.is_(None), waits)


def _next_claimable(lost_leases: Collection[Lease], max_devices: int, nodes: int) -> Any:
    """Return the query for the run to claim next. Postgres locks its row, and other workers skip it."""
    columns = select(Run.id, Run.attempt, Run.status, Run.config, Run.devices)
    # A run that its user wants to stop is not started again: `take_back_lost` settles it.
    return (
        columns.where(
            claimable_condition(lost_leases),
            Run.requested_action == "",
            Run.devices <= max_devices,
            Run.nodes == nodes,
        )
        .order_by(Run.priority.desc(), Run.queued_at, Run.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )


def begin_attempt(session: Session, run_id: str, attempt: int, from_step: int, **facts: Any) -> None:
    """Start an attempt after `from_step` (-1 if it starts from scratch) and hide rows of later steps."""
    fence(session, run_id, attempt, last_step=max(from_step, 0))
    # The attempt has no points yet, so its blocks are complete up to that step.
    packed_step_or_start = case((Attempt.packed_step < from_step, from_step), else_=Attempt.packed_step)
    note_attempt(session, run_id, attempt, from_step=from_step, packed_step=packed_step_or_start, **facts)


def note_attempt(session: Session, run_id: str, attempt: int, **facts: Any) -> None:
    """Store facts about an attempt, such as its process id, its device and versions."""
    session.execute(
        update(Attempt).where(Attempt.run_id == run_id, Attempt.number == attempt).values(**facts)
    )


def finish_run(
    session: Session, run_id: str, attempt: int, status: End, reason: str = "", *, request: str = ""
) -> None:
    """End or pause a run on behalf of the attempt that owns it.

    `request` is the action that ends the run. If the user requests another action while the trainer saves
    its checkpoint, that action takes effect instead.
    """
    if request and (requested_action := fence(session, run_id, attempt)) != request:
        new_status, new_reason = STATUS_BY_REQUEST.get(requested_action, ("queued", ""))
        _leave_running(
            session, run_id, attempt, new_status, new_reason, note=new_reason or "resumed by the user"
        )
    else:
        _leave_running(session, run_id, attempt, status, reason)


def release_run(session: Session, run_id: str, attempt: int, reason: str = "") -> str:
    """Return a run to its place in the queue without counting a failure, or carry out its pending request."""
    requested_action = fence(session, run_id, attempt)
    return _leave_running(session, run_id, attempt, _status_for(requested_action), reason)


def fail_attempt(
    session: Session, run_id: str, attempt: int, reason: str, *, limit: int = MAX_FAILURES
) -> str:
    """Move a run whose trainer failed to the end of the queue, or fail it after `limit` failures in a row."""
    fence(session, run_id, attempt, own_failures=Run.own_failures + 1)
    run = locked_run(session, run_id)
    if run.own_failures >= limit:
        return _leave_running(session, run_id, attempt, "failed", reason)
    delay_seconds = BACKOFF_SECONDS[min(run.own_failures, len(BACKOFF_SECONDS)) - 1]
    requeue: dict[str, Any] = {"queued_at": db_now(), "run_after": db_now() + delay_seconds}
    return _leave_running(
        session, run_id, attempt, _status_for(run.requested_action), reason, level="error", **requeue
    )


def take_back_lost(session: Session, leases: Collection[Lease]) -> list[str]:
    """Return the runs of these lost leases to their queue positions, or carry out their users' requests."""
    query = (
        select(Run.id, Run.attempt, Run.requested_action)
        .where(is_lost_lease(leases))
        .with_for_update(skip_locked=True)
    )
    lost_runs = session.execute(query).all()
    for run_id, attempt, requested_action in lost_runs:
        _leave_running(session, run_id, attempt, _status_for(requested_action), LOST_REASON, level="warning")
    return [run_id for run_id, _, _ in lost_runs]


def _status_for(requested_action: str) -> str:
    return STATUS_BY_REQUEST[requested_action][0] if requested_action in STATUS_BY_REQUEST else "queued"


def _leave_running(
    session: Session,
    run_id: str,
    attempt: int,
    status: str,
    reason: str,
    *,
    note: str = "",
    level: str = "",
    **values: Any,
) -> str:
    """Move a run from running to another status; raise Fenced if another attempt owns the run."""
    reason = redact(clean_text(reason))
    values |= {
        "status": status,
        "reason": reason,
        "requested_action": "",
        "worker_id": None,
        "lease_until": 0.0,
    }
    if status in ENDED_STATUSES:
        values |= {"finished_at": now_or_later(Run.started_at)}
    owned_update = update(Run).where(Run.id == run_id, Run.attempt == attempt, Run.status == "running")
    if not _update_once(session, owned_update.values(**values)):
        raise Fenced(run_id, attempt)
    _close_attempt(session, run_id, attempt, note or reason or status)
    level = level or ("error" if status == "failed" else "info")
    _note(session, run_id, attempt, "running", status, note or reason, level=level)
    return status


def _close_attempt(session: Session, run_id: str, attempt: int, outcome: str) -> None:
    statement = update(Attempt).where(
        Attempt.run_id == run_id, Attempt.number == attempt, Attempt.ended_at.is_(None)
    )
    session.execute(statement.values(ended_at=now_or_later(Attempt.started_at), outcome=outcome))


def has_attempt_ended(session: Session, run_id: str, reason: str, *, since_attempt: int) -> bool:
    """Return whether this attempt of the run, or a later one, has ended for this reason."""
    ended_clause = exists().where(
        Attempt.run_id == run_id, Attempt.number >= since_attempt, Attempt.outcome == reason
    )
    return bool(session.scalar(select(ended_clause)))


def request_action(session: Session, run_id: str, requested_action: RequestedAction) -> None:
    """Stop or pause a run: at once if it is not running, else at the trainer's next step.

    The action "" withdraws an earlier request, and "prune" is the stop that a search requests. Raises
    MoveForbidden if the status of the run does not allow the action.
    """
    run = locked_run(session, run_id)
    if run.writer is None or requested_action == "pause":
        refuse_imported(
            run, {"stop": "stopped", "prune": "stopped", "pause": "paused", "": "resumed"}[requested_action]
        )
    if (
        run.status == "running"
        and requested_action == "stop"
        and run.writer is not None
        and is_unresponsive(session, run)
    ):
        end_pushed(session, run, "stopped", "stopped by the user; its client did not answer")
    elif run.status == "running":
        _change(session, run, {"requested_action": requested_action})
        verb = {"stop": "stop", "prune": "stop by its search", "pause": "pause", "": "carry on"}[
            requested_action
        ]
        add_event(
            session,
            "lifecycle",
            f"asked to {verb}",
            run_id=run_id,
            attempt=run.attempt,
            data={"requested_action": requested_action},
        )
    elif requested_action in ("stop", "prune") and run.status in ("queued", "paused"):
        _move(session, run, *STATUS_BY_REQUEST[requested_action], finished_at=now_or_later(Run.started_at))
    elif requested_action == "pause" and run.status == "queued":
        _move(session, run, *STATUS_BY_REQUEST[requested_action])
    else:
        allowed_statuses = "queued or running" if requested_action == "pause" else "queued, running or paused"
        raise MoveForbidden(run_id, run.status, requested_action or "carrying on", allowed_statuses)


def resume_run(session: Session, run_id: str) -> None:
    """Queue a paused or stopped run again, or withdraw the request of a running run."""
    run = locked_run(session, run_id)
    if run.writer is None or run.status != "running":
        refuse_imported(run, "resumed")
    if run.status == "running" and run.requested_action:
        _refuse_trashed(run)
        request_action(session, run_id, "")
    elif run.status in ("paused", "stopped"):
        _move_to_queue(session, run, "resumed by the user")
    else:
        raise MoveForbidden(run_id, run.status, "resume", "paused or stopped")


def retry_run(session: Session, run_id: str) -> None:
    """Queue a failed or stopped run again."""
    run = locked_run(session, run_id)
    refuse_imported(run, "retried")
    if run.status not in ("failed", "stopped"):
        raise MoveForbidden(run_id, run.status, "retry", "failed or stopped")
    _move_to_queue(session, run, "tried again by the user")


def _refuse_trashed(run: Run) -> None:
    if run.deleted_at is not None:
        raise Conflict(f"run {run.id!r} is in the trash: restore it first")


def _move_to_queue(session: Session, run: Run, reason: str) -> None:
    _refuse_trashed(run)
    values = {
        "queued_at": db_now(),
        "finished_at": None,
        "own_failures": 0,
        "run_after": 0.0,
        "requested_action": "",
    }
    _move(session, run, "queued", "", note=reason, **values)


def _move(session: Session, run: Run, status: str, reason: str, *, note: str = "", **values: Any) -> None:
    old_status = run.status
    if status not in MOVES[old_status]:
        raise MoveForbidden(run.id, old_status, f"to become {status}", "in another status")
    _change(session, run, {"status": status, "reason": reason, **values})
    _note(session, run.id, run.attempt or None, old_status, status, note or reason)


def _change(session: Session, run: Run, values: dict[str, Any]) -> None:
    """Change the row if its status and attempt are unchanged; raise MoveForbidden otherwise."""
    unchanged_update = update(Run).where(
        Run.id == run.id, Run.status == run.status, Run.attempt == run.attempt
    )
    if not _update_once(session, unchanged_update.values(**values)):
        raise MoveForbidden(run.id, "changing", "this", "no longer changing state: try again")
    session.expire(run)


def locked_run(session: Session, run_id: str) -> Run:
    """Return the current row of a run, locked on Postgres until the transaction ends; raise RunNotFound."""
    query = select(Run).where(Run.id == run_id, Run.deleting_at.is_(None)).with_for_update()
    run = session.scalars(query, execution_options={"populate_existing": True}).one_or_none()
    if run is None:
        raise RunNotFound(run_id)
    return run


def _note(
    session: Session,
    run_id: str,
    attempt: int | None,
    old_status: str,
    new_status: str,
    reason: str,
    *,
    level: str = "info",
    **data: Any,
) -> None:
    message = f"{old_status} -> {new_status}" + (f": {reason}" if reason else "")
    move = {"from": old_status, "to": new_status, "reason": reason, **data}
    add_event(session, "lifecycle", message, run_id=run_id, attempt=attempt, level=level, data=move)


def _update_once(session: Session, statement: Any) -> bool:
    result = session.execute(statement, execution_options={"synchronize_session": False})
    return cast("CursorResult[Any]", result).rowcount == 1
