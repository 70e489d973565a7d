"""Apply an action to many runs, in batches of one transaction each.

An action names the desired state of the runs, so it is safe to repeat: runs in that state stay unchanged.
The result lists the changed runs, so that the change can be undone, and the refused runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from sqlalchemy import Row, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from backend.base.errors import GrpoLabError, Unavailable
from backend.runs.deletion import begin_deletion
from backend.runs.lifecycle import request_action
from backend.runs.schemas import MAX_TAGS
from backend.runs.store import restore_run, trash_run
from backend.storage.engine import Sessions, db_now
from backend.storage.models import Run

Action = Literal["tag", "untag", "archive", "unarchive", "stop", "trash", "restore", "delete"]

BATCH_SIZE = 500
MAX_RUNS = 10_000
"""Maximum number of runs in one request."""


@dataclass(slots=True)
class Outcome:
    """The result of an action."""

    matched: int = 0
    """Number of runs that the action was requested for."""
    changed: list[str] = field(default_factory=list)
    """Ids of the changed runs."""
    refused: list[dict[str, str]] = field(default_factory=list)
    """`id`, `name` and `reason` of the runs that could not be changed."""
    missing: int = 0
    """Number of runs that no longer exist."""


def act_on(sessions: Sessions, action: Action, run_ids: Sequence[str], *, tag: str = "") -> Outcome:
    """Apply an action to these runs.

    Raise Unavailable, with the number of processed runs, if the database fails after the first batch.
    """
    run_ids = sorted(set(run_ids), reverse=True)  # forks come before the runs that they start from
    outcome = Outcome(matched=len(run_ids))
    for first in range(0, len(run_ids), BATCH_SIZE):
        try:
            with sessions.begin() as session:
                _act_on_batch(session, action, run_ids[first : first + BATCH_SIZE], tag, outcome)
        except SQLAlchemyError as error:
            if not first:
                raise
            raise Unavailable(
                f"the database failed after {first:,} of {len(run_ids):,} runs, which keep their change; "
                "the same request again does the rest"
            ) from error
    return outcome


def _act_on_batch(session: Session, action: Action, ids: Sequence[str], tag: str, outcome: Outcome) -> None:
    query = select(
        Run.id, Run.name, Run.status, Run.requested_action, Run.tags, Run.archived_at, Run.deleted_at
    ).where(Run.id.in_(ids), Run.deleting_at.is_(None))
    rows = session.execute(query.order_by(Run.id.desc()).with_for_update()).all()
    changed_ids = _ACTIONS[action](session, rows, outcome, tag)
    outcome.changed += changed_ids
    outcome.missing += len(ids) - len(rows)


def _update_rows(session: Session, rows: Sequence[Row[Any]], **values: Any) -> list[str]:
    ids = [row.id for row in rows]
    if ids:
        session.execute(update(Run).where(Run.id.in_(ids)).values(**values))
    return ids


def _archive(session: Session, rows: Sequence[Row[Any]], _outcome: Outcome, _tag: str) -> list[str]:
    return _update_rows(session, [row for row in rows if row.archived_at is None], archived_at=db_now())


def _unarchive(session: Session, rows: Sequence[Row[Any]], _outcome: Outcome, _tag: str) -> list[str]:
    return _update_rows(session, [row for row in rows if row.archived_at is not None], archived_at=None)


def _tag(session: Session, rows: Sequence[Row[Any]], outcome: Outcome, tag: str) -> list[str]:
    untagged_rows = [row for row in rows if tag not in row.tags]
    at_limit = [row for row in untagged_rows if len(row.tags) >= MAX_TAGS]
    outcome.refused += [_refusal(row, f"a run has at most {MAX_TAGS} tags") for row in at_limit]
    return _write_tags(session, {row.id: [*row.tags, tag] for row in untagged_rows if row not in at_limit})


def _untag(session: Session, rows: Sequence[Row[Any]], _outcome: Outcome, tag: str) -> list[str]:
    tagged_rows = [row for row in rows if tag in row.tags]
    return _write_tags(session, {row.id: [name for name in row.tags if name != tag] for row in tagged_rows})


def _write_tags(session: Session, tags: dict[str, list[str]]) -> list[str]:
    if tags:
        session.execute(
            update(Run), [{"id": run_id, "tags": tags_of_run} for run_id, tags_of_run in tags.items()]
        )
    return list(tags)


def _trash(session: Session, rows: Sequence[Row[Any]], outcome: Outcome, _tag: str) -> list[str]:
    """Move runs to the trash, and ask those that are running to stop."""
    live_rows = [row for row in rows if row.deleted_at is None]
    training = [row for row in live_rows if row.status == "running"]
    not_training = [row for row in live_rows if row.status != "running"]
    return _update_rows(session, not_training, deleted_at=db_now()) + _change_each(
        session, training, outcome, trash_run
    )


def _restore(session: Session, rows: Sequence[Row[Any]], outcome: Outcome, _tag: str) -> list[str]:
    """Restore runs from the trash, and withdraw the stop of those that are still running."""
    trashed_rows = [row for row in rows if row.deleted_at is not None]
    training = [row for row in trashed_rows if row.status == "running"]
    not_training = [row for row in trashed_rows if row.status != "running"]
    return _update_rows(session, not_training, deleted_at=None) + _change_each(
        session, training, outcome, restore_run
    )


def _stop(session: Session, rows: Sequence[Row[Any]], outcome: Outcome, _tag: str) -> list[str]:
    active = [
        row
        for row in rows
        if row.status in ("queued", "running", "paused") and row.requested_action != "stop"
    ]
    return _change_each(session, active, outcome, partial(request_action, requested_action="stop"))


def _delete(session: Session, rows: Sequence[Row[Any]], outcome: Outcome, _tag: str) -> list[str]:
    return _change_each(session, rows, outcome, begin_deletion)


def _change_each(
    session: Session,
    rows: Sequence[Row[Any]],
    outcome: Outcome,
    change: Callable[[Session, str], None],
) -> list[str]:
    """Change the rows one by one, each in a savepoint, and return the ids of those that were not refused."""
    changed_ids = []
    for row in rows:
        try:
            with session.begin_nested():
                change(session, row.id)
        except GrpoLabError as error:
            outcome.refused.append(_refusal(row, error.detail))
        else:
            changed_ids.append(row.id)
    return changed_ids


def _refusal(row: Row[Any], reason: str) -> dict[str, str]:
    return {"id": row.id, "name": row.name, "reason": reason}


_ACTIONS: dict[Action, Callable[[Session, Sequence[Row[Any]], Outcome, str], list[str]]] = {
    "tag": _tag,
    "untag": _untag,
    "archive": _archive,
    "unarchive": _unarchive,
    "stop": _stop,
    "trash": _trash,
    "restore": _restore,
    "delete": _delete,
}
