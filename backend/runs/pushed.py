"""Pushed runs, which another trainer creates and whose end its client reports.

They have no worker and no lease. The client updates `run.progress_at` every few seconds. A client that has
been silent for long may be dead or offline, so its run stays unchanged until it is stopped.
"""

from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from backend.base.redaction import redact
from backend.base.text import clean_text
from backend.runs.events import add_event
from backend.storage.engine import db_now, now_or_later
from backend.storage.models import Attempt, Run

SILENT_SECONDS = 120.0
"""Seconds of silence after which a client is unresponsive; a live client reports every ten seconds."""


def is_unresponsive(session: Session, run: Run) -> bool:
    """Return whether the client was already asked to stop or has been silent for too long."""
    if run.requested_action == "stop":
        return True
    age = session.scalar(select(db_now() - Run.progress_at).where(Run.id == run.id))
    return age is not None and age > SILENT_SECONDS


def end_pushed(session: Session, run: Run, status: str, reason: str) -> None:
    """End a run as its client or a user requested; a repeated call changes nothing."""
    reason = redact(clean_text(reason))
    if (run.status, run.reason) == (status, reason):
        return
    _set_status(session, run, status, reason, requested_action="", finished_at=now_or_later(Run.started_at))
    attempt = update(Attempt).where(Attempt.run_id == run.id)
    session.execute(attempt.values(ended_at=now_or_later(Attempt.started_at), outcome=reason or status))


def continue_pushed(session: Session, run: Run) -> None:
    """Continue an ended run, because a script with its id has started again."""
    _set_status(session, run, "running", "", requested_action="", finished_at=None)
    session.execute(update(Attempt).where(Attempt.run_id == run.id).values(ended_at=None, outcome=""))


def _set_status(session: Session, run: Run, status: str, reason: str, **values: Any) -> None:
    old_status = run.status
    session.execute(update(Run).where(Run.id == run.id).values(status=status, reason=reason, **values))
    session.refresh(run)
    message = f"{old_status} -> {status}" + (f": {reason}" if reason else "")
    add_event(
        session,
        "lifecycle",
        message,
        run_id=run.id,
        attempt=run.attempt,
        level="error" if status == "failed" else "info",
        data={"from": old_status, "to": status, "reason": reason},
    )
