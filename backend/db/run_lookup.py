"""Look-ups of runs for the parts of the service that show what belongs to a run."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from backend.db.models import Experiment, Run
from backend.errors import RunNotFound


def must_exist(session: Session, run_id: str) -> None:
    """Raise RunNotFound unless there is such a run."""
    if session.scalar(select(Run.id).where(Run.id == run_id, Run.deleting_at.is_(None))) is None:
        raise RunNotFound(run_id)


def names_of(session: Session, run_ids: Iterable[str]) -> dict[str, Row[Any]]:
    """Names and groups of those runs that exist."""
    experiment = Experiment.name.label("experiment_name")
    columns = (
        Run.id,
        Run.name,
        Run.variant,
        Run.seed,
        Run.status,
        Run.config_hash,
        Run.tags,
        Run.verdict,
        Run.parent_run,
        Run.fork_step,
        Run.steps,
        Run.last_step,
        experiment,
    )
    query = select(*columns).join_from(Run, Experiment, Run.experiment_id == Experiment.id, isouter=True)
    query = query.where(Run.id.in_(list(run_ids)), Run.deleting_at.is_(None))
    found: list[Any] = list(session.execute(query))
    return {row.id: row for row in found}


def configs_of(session: Session, run_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The config of each run."""
    query = select(Run.id, Run.config).where(Run.id.in_(list(run_ids)))
    return {row.id: row.config for row in session.execute(query)}
