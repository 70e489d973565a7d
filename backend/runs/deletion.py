"""Permanent deletion of runs.

A run is marked and hidden at once. The reconciler then removes its rows in batches, each in its own
transaction, then its files and then the row of the run. If the process is killed in between, the mark stays
and the next pass continues the deletion.
"""

import logging
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from sqlalchemy import CursorResult, delete, select, tuple_, update
from sqlalchemy.orm import Session

from backend.base.durable_files import sync
from backend.base.errors import Conflict
from backend.base.settings import Settings
from backend.runs.cost import add_costs, sum_cost
from backend.runs.events import add_event
from backend.runs.lifecycle import locked_run
from backend.storage.artifacts.store import artifact_store
from backend.storage.engine import Sessions, db_now, open_read_session
from backend.storage.models import (
    Attempt,
    Checkpoint,
    Event,
    Experiment,
    GroupTally,
    LogChunk,
    Metric,
    MetricBlock,
    PushSession,
    RolloutGroup,
    Run,
    RunPrompt,
    Search,
    SearchTrial,
    Trial,
)
from backend.storage.rollout_words import remove_from_index

logger = logging.getLogger(__name__)

BATCH_SIZE_BY_TABLE: tuple[tuple[Any, int], ...] = (
    (MetricBlock, 1_000),
    (Metric, 10_000),
    (RolloutGroup, 200),  # with their completions and tokens
    (GroupTally, 10_000),
    (RunPrompt, 1_000),
    (LogChunk, 500),
    (Checkpoint, 1_000),
    (Event, 10_000),
    (PushSession, 10_000),
    (Attempt, 10_000),
    (Trial, 1_000),
)
"""Tables with rows of a run, and the maximum number of rows that one transaction removes."""

MAX_NAMED = 3
"""Maximum number of blocking runs that an error names."""


class StillNeeded(Conflict):
    """The run cannot be deleted because other runs start from its checkpoints."""

    def __init__(self, name: str, needed_by: Sequence[str]) -> None:
        names = ", ".join(needed_by[:MAX_NAMED]) + (", ..." if len(needed_by) > MAX_NAMED else "")
        is_single = len(needed_by) == 1
        super().__init__(
            f"{names} {'begins' if is_single else 'begin'} with a checkpoint of {name}: delete "
            f"{'it' if is_single else 'them'} first"
        )


def begin_deletion(session: Session, run_id: str) -> None:
    """Mark a run in the trash for permanent deletion; raise Conflict if it cannot be deleted."""
    run = locked_run(session, run_id)
    if run.deleted_at is None:
        raise Conflict(f"{run.name} is not in the trash: delete it first")
    if run.status == "running":
        raise Conflict(f"{run.name} still trains: it is deleted permanently once it has stopped")
    if dependent_names := [child.name for child in _find_dependents(session, [run_id])]:
        raise StillNeeded(run.name, dependent_names)
    _mark(session, [run_id])


def empty_trash(session: Session) -> tuple[list[str], list[dict[str, str]]]:
    """Mark all deletable runs in the trash; return their ids, and the other runs with the reasons."""
    query = select(Run.id, Run.name, Run.status).where(Run.deleted_at.is_not(None), Run.deleting_at.is_(None))
    rows = {row.id: row for row in session.execute(query.order_by(Run.id).with_for_update())}
    reason_by_run = {
        run_id: f"{row.name} still trains" for run_id, row in rows.items() if row.status == "running"
    }
    deletable_ids = set(rows) - set(reason_by_run)
    children = _find_dependents(session, deletable_ids)
    while blocking_ids := [
        child for child in children if child.id not in deletable_ids and child.parent_run in deletable_ids
    ]:
        for child in blocking_ids:
            deletable_ids.discard(child.parent_run)
            reason_by_run[child.parent_run] = str(StillNeeded(rows[child.parent_run].name, [child.name]))
    _mark(session, deletable_ids)
    not_deleted = [
        {"id": run_id, "name": rows[run_id].name, "reason": reason}
        for run_id, reason in sorted(reason_by_run.items())
    ]
    return sorted(deletable_ids), not_deleted


def _find_dependents(session: Session, runs: Collection[str]) -> Sequence[Any]:
    """Return the forks and evaluations of these runs that are not being deleted."""
    query = select(Run.id, Run.name, Run.parent_run).where(
        Run.parent_run.in_(runs), Run.fork_step.is_not(None), Run.deleting_at.is_(None)
    )
    return session.execute(query.order_by(Run.id)).all()


def _mark(session: Session, runs: Collection[str]) -> None:
    _keep_costs(session, runs)
    session.execute(update(Run).where(Run.id.in_(runs)).values(deleting_at=db_now()))


def _keep_costs(session: Session, runs: Collection[str]) -> None:
    """Add the cost of these runs to their searches, so that deleting them does not free budget."""
    conditions = (Run.id.in_(runs), Run.deleting_at.is_(None))
    searches = (
        select(Search.experiment_id).join(Run, Run.experiment_id == Search.experiment_id).where(*conditions)
    )
    now = session.scalar(select(db_now())) or 0.0
    for experiment_id in session.scalars(searches.distinct().order_by(Search.experiment_id)).all():
        search = session.get_one(Search, experiment_id, with_for_update=True, populate_existing=True)
        attempt_query = select(Attempt).join(Run, Run.id == Attempt.run_id)
        attempts = session.scalars(
            attempt_query.where(*conditions, Run.experiment_id == search.experiment_id)
        ).all()
        search.deleted_cost = add_costs(search.deleted_cost, sum_cost(attempts, now))
    session.flush()


def continue_deletions(sessions: Sessions, settings: Settings, *, seconds: float) -> int:
    """Remove marked runs for about `seconds` and return the number of runs that are deleted completely.

    If the files of a run cannot be removed, raise OSError or ArtifactFault after processing the other runs.
    """
    deadline = time.monotonic() + seconds
    deleted_count = 0
    failure: OSError | None = None
    for run_id in _find_marked(sessions):
        for _ in _remove_in_batches(sessions, run_id):
            if time.monotonic() > deadline:
                return deleted_count
        try:
            remove_files(settings.artifact_dir(run_id))
            if (store := artifact_store(settings)) is not None:
                store.remove_run(run_id)
        except OSError as error:
            failure = error
            continue
        with sessions.begin() as session:
            deleted_count += _remove_last_row(session, run_id)
    if failure is not None:
        raise failure
    return deleted_count


def remove_files(directory: Path) -> None:
    """Remove a directory and sync its parent; a missing directory is not an error."""
    if directory.exists():
        shutil.rmtree(directory)
    if directory.parent.is_dir():
        sync(directory.parent)


def _find_marked(sessions: Sessions) -> list[str]:
    """Return the marked runs from which no other marked run starts, oldest mark first."""
    with open_read_session(sessions) as session:
        query = select(Run.id, Run.parent_run, Run.fork_step).where(Run.deleting_at.is_not(None))
        rows = session.execute(query.order_by(Run.deleting_at, Run.id)).all()
    parent_ids = {row.parent_run for row in rows if row.fork_step is not None}
    return [row.id for row in rows if row.id not in parent_ids]


def _remove_in_batches(sessions: Sessions, run_id: str) -> Iterator[int]:
    """Remove the rows of a run in batches, and yield the number of rows in each batch."""
    for table, limit in BATCH_SIZE_BY_TABLE:
        key = table.__table__.primary_key.columns
        key_query = select(*key).where(table.run_id == run_id).limit(limit)
        while True:
            with sessions.begin() as session:
                keys: Any = key_query
                if table is RolloutGroup:
                    keys = [tuple(row) for row in session.execute(key_query)]
                    remove_from_index(session, RolloutGroup.id.in_([row[0] for row in keys]))
                statement = delete(table).where(tuple_(*key).in_(keys))
                result = session.execute(statement, execution_options={"synchronize_session": False})
                removed_count = cast("CursorResult[Any]", result).rowcount
            if not removed_count:
                break
            yield removed_count


def _remove_last_row(session: Session, run_id: str) -> int:
    """Delete the row of a run, detach its clones, and delete its experiment if this was its last run."""
    run = session.scalar(select(Run).where(Run.id == run_id, Run.deleting_at.is_not(None)).with_for_update())
    if run is None:
        return 0
    session.execute(
        update(Run).where(Run.parent_run == run_id, Run.fork_step.is_(None)).values(parent_run=None)
    )
    session.execute(delete(Run).where(Run.id == run_id), execution_options={"synchronize_session": False})
    remaining_query = select(Run.id).where(Run.experiment_id == run.experiment_id)
    if run.experiment_id is not None and session.scalar(remaining_query.limit(1)) is None:
        _leave_trial(session, run.experiment_id)
        for table in (SearchTrial, Search):
            session.execute(delete(table).where(table.experiment_id == run.experiment_id))
        session.execute(delete(Experiment).where(Experiment.id == run.experiment_id))
    add_event(session, "lifecycle", f"{run.name} was deleted permanently", data={"deleted": run_id})
    logger.info("run %s was deleted permanently", run_id)
    return 1


def _leave_trial(session: Session, experiment_id: str) -> None:
    """Delete the trial of an experiment if it has no verdict; otherwise only detach it."""
    is_of_experiment = Trial.experiment_id == experiment_id
    session.execute(delete(Trial).where(is_of_experiment, Trial.judged_at.is_(None)))
    session.execute(update(Trial).where(is_of_experiment).values(experiment_id=None))
