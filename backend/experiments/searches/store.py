"""Database queries for searches."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.base.errors import NotFound
from backend.experiments.searches.decide import SearchRow
from backend.experiments.searches.objective import make_reports
from backend.experiments.searches.trial import RunRow, TrialRow
from backend.experiments.sweep import Sweep
from backend.metrics.reading import read_points
from backend.storage.models import Event, Experiment, Run, Search, SearchTrial

ACTIVE_STATUSES = ("searching", "comparing")
MAX_EVENTS = 30


class SearchState(NamedTuple):
    """A search with all data that its decisions are based on."""

    search: SearchRow
    trials: list[TrialRow]
    runs: list[RunRow]
    """All runs of the experiment, without the trash, in the order in which they were queued."""


_ACTIVE_SEARCHES = select(Search.experiment_id).where(Search.status.in_(ACTIVE_STATUSES))


def active_searches(session: Session) -> list[str]:
    """Return the ids of the experiments whose search is in progress."""
    return list(session.scalars(_ACTIVE_SEARCHES))


def is_search(session: Session, experiment_id: str) -> bool:
    """Return whether an experiment is a search."""
    return session.get(Search, experiment_id) is not None


def read_search(session: Session, experiment_id: str) -> SearchState:
    """Return the state of a search; raise NotFound if the experiment is not a search."""
    row = session.execute(
        select(Search, Experiment).join(Experiment, Experiment.id == Search.experiment_id)
        .where(Search.experiment_id == experiment_id)
    ).one_or_none()  # fmt: skip
    if row is None:
        raise NotFound(f"experiment {experiment_id!r} is not a search")
    search = _search(row.Search, row.Experiment)
    runs = _runs(session, search)
    by_id = {run.id: run for run in runs}
    query = select(SearchTrial).where(SearchTrial.experiment_id == experiment_id)
    trials = [_trial(row, by_id) for row in session.scalars(query.order_by(SearchTrial.number))]
    return SearchState(search, trials, runs)


def _search(row: Search, experiment: Experiment) -> SearchRow:
    request: dict[str, Any] = experiment.request
    run_fields = {
        key: request.get(key, default) for key, default in (("priority", 0), ("tags", []), ("notes", ""))
    }
    return SearchRow(
        experiment_id=row.experiment_id,
        name=experiment.name,
        status=row.status,
        revision=row.revision,
        base=request["base"],
        variant=request["variants"][0],
        sweep=Sweep.model_validate(request["sweep"]),
        seeds=tuple(request["seeds"]),
        run_fields=run_fields,
        reason=row.reason,
        ended_at=row.ended_at,
    )


def _runs(session: Session, search: SearchRow) -> list[RunRow]:
    columns = (
        Run.id, Run.name, Run.variant, Run.seed, Run.status, Run.steps, Run.last_step, Run.reason,
        Run.requested_action, Run.verdict, Run.judged_step,
    )  # fmt: skip
    conditions = (
        Run.experiment_id == search.experiment_id,
        Run.deleted_at.is_(None),
        Run.deleting_at.is_(None),
    )
    rows = session.execute(select(*columns).where(*conditions).order_by(Run.created_at, Run.id)).all()
    metric = search.settings.metric
    points = read_points(session, [row.id for row in rows], [metric])
    return [
        RunRow(
            **{**row._mapping, "judged_step": row.judged_step or 0},  # noqa: SLF001 - a public name of a Row
            reports=make_reports(points.get((row.id, metric)), search.settings, row.steps),
        )
        for row in rows
    ]


def _trial(row: SearchTrial, runs: dict[str, RunRow]) -> TrialRow:
    return TrialRow(
        number=row.number,
        point=tuple(row.point),
        variant=row.variant,
        run=runs.get(row.run_id or ""),
        refused=row.refused,
        judged_step=row.judged_step,
        pruned=row.pruned,
        chosen=row.chosen,
    )


def load_events(session: Session, runs: Sequence[RunRow]) -> Sequence[Event]:
    """Return the newest events of the search's runs, newest first."""
    query = select(Event).where(Event.kind == "search", Event.run_id.in_([run.id for run in runs]))
    return session.scalars(query.order_by(Event.id.desc()).limit(MAX_EVENTS)).all()
