"""Queries about experiments."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from backend.base.errors import ExperimentNotFound
from backend.http.paging import iso, read_cursor
from backend.storage.models import Experiment, Run


def list_experiments(session: Session, *, limit: int, cursor: str) -> Sequence[Experiment]:
    """Experiments, newest first, and one more than the page holds."""
    query = select(Experiment).order_by(Experiment.created_at.desc(), Experiment.id.desc())
    if after := read_cursor(cursor, (int, float), str):
        created_at, experiment_id = after
        same_time = and_(Experiment.created_at == created_at, Experiment.id < experiment_id)
        query = query.where(or_(Experiment.created_at < created_at, same_time))
    return session.scalars(query.limit(limit + 1)).all()


def find_experiment(session: Session, experiment_id: str) -> Experiment:
    """Raises ExperimentNotFound."""
    experiment = session.get(Experiment, experiment_id)
    if experiment is None:
        raise ExperimentNotFound(experiment_id)
    return experiment


def statuses_of(session: Session, experiment_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Number of runs of each status, for each experiment."""
    query = (
        select(Run.experiment_id, Run.status, func.count())
        .where(Run.experiment_id.in_(experiment_ids), Run.deleted_at.is_(None))
        .group_by(Run.experiment_id, Run.status)
    )
    counts: dict[str, dict[str, int]] = {}
    for experiment_id, status, count in session.execute(query):
        counts.setdefault(str(experiment_id), {})[status] = count
    return counts


def experiment_json(experiment: Experiment, statuses: dict[str, int]) -> dict[str, Any]:
    """schemas.ExperimentItem."""
    return {
        "id": experiment.id,
        "name": experiment.name,
        "created_at": iso(experiment.created_at),
        "variants": [variant["name"] for variant in experiment.request["variants"]],
        "seeds": experiment.request["seeds"],
        "runs": sum(statuses.values()),
        "statuses": statuses,
    }


def runs_of(session: Session, experiment_id: str) -> Sequence[Run]:
    """Return the runs of an experiment, the trash left out, in the order in which they were queued."""
    query = select(Run).where(Run.experiment_id == experiment_id, Run.deleted_at.is_(None))
    return session.scalars(query.order_by(Run.created_at, Run.id)).all()
