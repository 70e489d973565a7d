"""The budget of a search: the cost of its runs so far, and whether another run fits."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.base.settings import Settings
from backend.config.run import RunConfig
from backend.experiments.duration_estimate import count_slots, estimate_duration
from backend.experiments.search_settings import SearchSettings
from backend.experiments.searches.trial import LIVE_STATUSES, RunRow
from backend.runs.cost import HOUR_SECONDS, add_costs, newest_price, sum_cost
from backend.storage.engine import db_now
from backend.storage.models import Attempt, Run, Search


class SearchCost(NamedTuple):
    """The time and money that the runs of a search have cost so far."""

    hours: float
    """Hours of worker slots."""
    money: dict[str, float]
    """Money by currency."""
    by_run: dict[str, float]
    """Hours by run."""


def load_cost(session: Session, experiment_id: str) -> SearchCost:
    """Return the time and money of a search's runs, including unfinished, trashed and deleted runs."""
    now = session.scalar(select(db_now())) or 0.0
    conditions = (Run.experiment_id == experiment_id, Run.deleting_at.is_(None))
    is_of_search = Attempt.run_id.in_(select(Run.id).where(*conditions))
    rows = session.scalars(select(Attempt).where(is_of_search)).all()
    by_run: dict[str, list[Attempt]] = {}
    for row in rows:
        by_run.setdefault(row.run_id, []).append(row)
    hours = {run_id: sum_cost(attempts, now)["slot_hours"] for run_id, attempts in by_run.items()}
    search = session.get(Search, experiment_id)
    total = add_costs(sum_cost(rows, now), search.deleted_cost if search is not None else {})
    return SearchCost(total["slot_hours"], total["money"], hours)


def estimated_hours(
    session: Session, settings: Settings, runs: Sequence[RunRow], used_cost: SearchCost, config: RunConfig
) -> float:
    """Return the slot hours of a run: the mean of the search's finished runs, or else the estimate for its
    config.
    """
    finished_hours = [used_cost.by_run.get(run.id, 0.0) for run in runs if run.status == "finished"]
    if finished_hours:
        return sum(finished_hours) / len(finished_hours)
    [slots] = count_slots(session, [config])
    return estimate_duration(session, config, settings.models_dir).high / HOUR_SECONDS * slots


def lacking_reason(
    session: Session,
    settings: Settings,
    experiment_id: str,
    search: SearchSettings,
    runs: Sequence[RunRow],
    config: RunConfig,
    *,
    additional_runs: int,
) -> str:
    """Return a sentence why the additional runs do not fit into the budget; empty if they fit."""
    if search.hours is None and search.money is None:
        return ""
    cost = load_cost(session, experiment_id)
    hours_per_run = estimated_hours(session, settings, runs, cost, config)
    remaining_hours = sum(
        max(0.0, hours_per_run - cost.by_run.get(run.id, 0.0)) for run in runs if run.status in LIVE_STATUSES
    )
    needed_hours = cost.hours + remaining_hours + additional_runs * hours_per_run
    if search.hours is not None and needed_hours > search.hours:
        return f"another run does not fit into {search.hours:g} hours: {cost.hours:.2g} are spent"
    price = newest_price(session)
    if search.money is None or price is None:
        return ""
    spent_money = cost.money.get(price.currency, 0.0)
    if spent_money + (remaining_hours + additional_runs * hours_per_run) * price.per_hour > search.money:
        return f"another run does not fit into {search.money:g} {price.currency}: {spent_money:.2f} are spent"
    return ""
