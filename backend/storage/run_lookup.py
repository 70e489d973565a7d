"""Lookups of runs, for the parts of the service that show data of a run."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from backend.base.errors import RunNotFound
from backend.storage.models import Experiment, Run


def require_run(session: Session, run_id: str) -> None:
    """Raise RunNotFound if the run does not exist."""
    if session.scalar(select(Run.id).where(Run.id == run_id, Run.deleting_at.is_(None))) is None:
        raise RunNotFound(run_id)


_NAMES = (
    select(
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
        Run.attempt,
        Run.changed_at,
        Experiment.name.label("experiment_name"),
    )
    .join_from(Run, Experiment, Run.experiment_id == Experiment.id, isouter=True)
    .where(Run.deleting_at.is_(None))
)


def load_run_names(session: Session, run_ids: Iterable[str]) -> dict[str, Row[Any]]:
    """Return the row of names, status and progress of each run that exists, by run id."""
    rows: list[Any] = list(session.execute(_NAMES.where(Run.id.in_(list(run_ids)))))
    return {row.id: row for row in rows}


def load_configs(session: Session, run_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the config of each run, by run id."""
    query = select(Run.id, Run.config).where(Run.id.in_(list(run_ids)))
    return {row.id: row.config for row in session.execute(query)}
