"""The budget of a search: what its runs have taken, and whether another one fits."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.base.settings import Settings
from backend.config.run import RunConfig
from backend.experiments.duration_estimate import count_slots, estimate_duration
from backend.experiments.search_settings import SearchSettings
from backend.experiments.searches.trial import LIVE, RunRow
from backend.runs.cost import HOUR, add_costs, newest_price, sum_cost
from backend.storage.engine import db_now
from backend.storage.models import Attempt, Run, Search


class SearchCost(NamedTuple):
    """Time and money that the runs of a search have taken so far."""

    hours: float
    """Hours of worker slots."""
    money: dict[str, float]
    """Money by currency."""
    by_run: dict[str, float]
    """Hours of each run."""


def load_cost(session: Session, experiment_id: str) -> SearchCost:
    """Return the time and money of a search's runs: also of those that train, are in the trash or were
    deleted.
    """
    now = session.scalar(select(db_now())) or 0.0
    conditions = (Run.experiment_id == experiment_id, Run.deleting_at.is_(None))
    of_it = Attempt.run_id.in_(select(Run.id).where(*conditions))
    rows = session.scalars(select(Attempt).where(of_it)).all()
    by_run: dict[str, list[Attempt]] = {}
    for row in rows:
        by_run.setdefault(row.run_id, []).append(row)
    hours = {run_id: sum_cost(attempts, now)["slot_hours"] for run_id, attempts in by_run.items()}
    search = session.get(Search, experiment_id)
    total = add_costs(sum_cost(rows, now), search.deleted_cost if search is not None else {})
    return SearchCost(total["slot_hours"], total["money"], hours)


def estimated_hours(
    session: Session, settings: Settings, runs: Sequence[RunRow], taken: SearchCost, config: RunConfig
) -> float:
    """Slot hours of a whole run: the mean of this search's finished ones, else the estimate of its config."""
    finished_hours = [taken.by_run.get(run.id, 0.0) for run in runs if run.status == "finished"]
    if finished_hours:
        return sum(finished_hours) / len(finished_hours)
    [slots] = count_slots(session, [config])
    return estimate_duration(session, config, settings.models_dir).high / HOUR * slots


def lacking_reason(
    session: Session,
    settings: Settings,
    experiment_id: str,
    search: SearchSettings,
    runs: Sequence[RunRow],
    config: RunConfig,
    *,
    further_runs: int,
) -> str:
    """Return the sentence that says why so many additional runs do not fit into the budget; empty if they
    do.
    """
    if search.hours is None and search.money is None:
        return ""
    taken = load_cost(session, experiment_id)
    hours_per_run = estimated_hours(session, settings, runs, taken, config)
    ahead = sum(max(0.0, hours_per_run - taken.by_run.get(run.id, 0.0)) for run in runs if run.status in LIVE)
    needed = taken.hours + ahead + further_runs * hours_per_run
    if search.hours is not None and needed > search.hours:
        return f"another run does not fit into {search.hours:g} hours: {taken.hours:.2g} are spent"
    price = newest_price(session)
    if search.money is None or price is None:
        return ""
    paid = taken.money.get(price.currency, 0.0)
    if paid + (ahead + further_runs * hours_per_run) * price.per_hour > search.money:
        return f"another run does not fit into {search.money:g} {price.currency}: {paid:.2f} are spent"
    return ""
