"""Database queries for experiments."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, func, or_, select, true
from sqlalchemy.orm import Session

from backend.base.errors import ExperimentNotFound
from backend.http.paging import iso_time, read_cursor
from backend.storage.models import Experiment, Run, Search, Trial


class Activity(NamedTuple):
    """The activity of an experiment's runs, without those in the trash."""

    statuses: dict[str, int]
    verdicts: dict[str, int]
    best_accuracy: float | None
    active_at: float | None


def list_experiments(session: Session, *, text: str, limit: int, cursor: str) -> Sequence[Experiment]:
    """Return a page of experiments whose name or variant contains the text, newest first, and one more."""
    query = select(Experiment).where(_name_condition(text))
    query = query.order_by(Experiment.created_at.desc(), Experiment.id.desc())
    if last_key := read_cursor(cursor, (int, float), str):
        created_at, experiment_id = last_key
        same_time = and_(Experiment.created_at == created_at, Experiment.id < experiment_id)
        query = query.where(or_(Experiment.created_at < created_at, same_time))
    return session.scalars(query.limit(limit + 1)).all()


def count_experiments(session: Session, text: str) -> int:
    """Return the number of experiments whose name or variant contains the text."""
    return session.scalars(select(func.count()).select_from(Experiment).where(_name_condition(text))).one()


def _name_condition(text: str) -> ColumnElement[bool]:
    """Return the condition that the name of an experiment or of one of its variants contains the text."""
    if not text:
        return true()
    variants = select(Run.experiment_id).where(
        Run.experiment_id.is_not(None), Run.deleted_at.is_(None), Run.variant.icontains(text, autoescape=True)
    )
    return or_(Experiment.name.icontains(text, autoescape=True), Experiment.id.in_(variants))


def find_experiment(session: Session, experiment_id: str) -> Experiment:
    """Return an experiment; raise ExperimentNotFound if it does not exist."""
    experiment = session.get(Experiment, experiment_id)
    if experiment is None:
        raise ExperimentNotFound(experiment_id)
    return experiment


def load_activities(session: Session, experiment_ids: Sequence[str]) -> dict[str, Activity]:
    """Return the activity of the runs of each experiment."""
    last_time = func.max(func.coalesce(Run.finished_at, Run.progress_at, Run.created_at))
    query = (
        select(
            Run.experiment_id,
            Run.status,
            Run.verdict,
            func.count(),
            func.max(Run.sort_eval_accuracy),
            last_time,
        )
        .where(Run.experiment_id.in_(experiment_ids), Run.deleted_at.is_(None))
        .group_by(Run.experiment_id, Run.status, Run.verdict)
    )
    activities = {experiment_id: Activity({}, {}, None, None) for experiment_id in experiment_ids}
    for experiment_id, status, verdict, count, accuracy, time in session.execute(query):
        activity = activities[str(experiment_id)]
        activity.statuses[status] = activity.statuses.get(status, 0) + count
        if verdict is not None:
            activity.verdicts[verdict] = activity.verdicts.get(verdict, 0) + count
        activities[str(experiment_id)] = activity._replace(
            best_accuracy=_largest_value(activity.best_accuracy, accuracy),
            active_at=_largest_value(activity.active_at, time),
        )
    return activities


def _largest_value(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)


def experiments_json(session: Session, experiments: Sequence[Experiment]) -> list[dict[str, Any]]:
    """Return experiments as `schemas.ExperimentItem`."""
    experiment_ids = [experiment.id for experiment in experiments]
    activities = load_activities(session, experiment_ids)
    searches = _existing_ids(session, Search.experiment_id, experiment_ids)
    trials = _existing_ids(session, Trial.experiment_id, experiment_ids)
    return [
        _experiment_json(
            experiment,
            activities[experiment.id],
            "search" if experiment.id in searches else "trial" if experiment.id in trials else "",
        )
        for experiment in experiments
    ]


def _existing_ids(session: Session, column: Any, experiment_ids: Sequence[str]) -> set[str]:
    return set(session.scalars(select(column).where(column.in_(experiment_ids))))


def _experiment_json(experiment: Experiment, activity: Activity, kind: str) -> dict[str, Any]:
    request = experiment.request
    return {
        "id": experiment.id,
        "name": experiment.name,
        "created_at": iso_time(experiment.created_at),
        "kind": kind or ("sweep" if request.get("sweep") else "variants"),
        "variants": [variant["name"] for variant in request["variants"]],
        "seeds": request["seeds"],
        "runs": sum(activity.statuses.values()),
        "statuses": activity.statuses,
        "verdicts": activity.verdicts,
        "best_accuracy": activity.best_accuracy,
        "active_at": iso_time(activity.active_at or experiment.created_at),
    }


def load_runs(session: Session, experiment_id: str) -> Sequence[Run]:
    """Return the runs of an experiment in the order in which they were queued, without the trash."""
    query = select(Run).where(Run.experiment_id == experiment_id, Run.deleted_at.is_(None))
    return session.scalars(query.order_by(Run.created_at, Run.id)).all()
