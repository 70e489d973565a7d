"""Add completions from a second file to an imported run, such as dumps next to its metrics."""

from sqlalchemy import update
from sqlalchemy.orm import Session

from backend.base.errors import Conflict, FieldError, InvalidRequest
from backend.exchange.imports.completions import Completions
from backend.exchange.imports.store import Names
from backend.metrics.store import write_points
from backend.metrics.summary import Summary
from backend.rollouts.foreign import ATTEMPT, replace_groups
from backend.rollouts.foreign_metrics import compute_text_points, refresh_points
from backend.runs.events import add_event
from backend.storage.engine import Sessions, open_read_session
from backend.storage.models import Experiment, Run
from backend.storage.sort_values import sort_values


def read_run_names(session: Session, run_id: str, file: str) -> Names:
    """Return the names of an existing run."""
    run = session.get_one(Run, run_id)
    experiment = session.get(Experiment, run.experiment_id)
    return Names(run.name, experiment.name if experiment else "", run.variant, run.seed, file)


def check_takes(session: Session, run_id: str, *, locks: bool = False) -> Run:
    """Return the run; raise InvalidRequest if it is missing, and Conflict if it accepts no completions."""
    run = session.get(Run, run_id, with_for_update=locks)
    if run is None or run.deleting_at is not None:
        raise InvalidRequest([FieldError("into", f"there is no run {run_id!r:.40}")])
    if not run.origin or run.writer is not None:
        raise Conflict("completions are added to runs that were imported; this one writes its own")
    return run


def add_completions(sessions: Sessions, run_id: str, completions: Completions, file: str) -> None:
    """Store the completions, replacing those of the run that have the same step and prompt position."""
    packed_groups, completions_by_step = completions.pack(run_id), completions.texts_by_step()
    with open_read_session(sessions) as session:
        texts = compute_text_points(session, run_id, completions_by_step)
    with sessions.begin() as session:
        run = check_takes(session, run_id, locks=True)
        points = refresh_points(session, run_id, completions_by_step, texts)
        for groups_of_step in packed_groups:
            replace_groups(session, groups_of_step)
        write_points(session, run_id, ATTEMPT, points)
        summary, last = Summary.read(run.summary), max(run.last_step, completions.last_step)
        for step, metrics in points:
            summary.add(step, metrics)
        values = {"last_step": last, "steps": max(run.steps, last), "judged_step": None}
        run_update = update(Run).where(Run.id == run_id)
        document = summary.document()
        session.execute(run_update.values(summary=document, **sort_values(document), **values))
        message = f"{len(completions):,} completions imported from {file}"
        add_event(session, "data", message, run_id=run_id, attempt=ATTEMPT, data={"file": file})
