"""Present a search: its configurations, the best so far, the comparison and the cost."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from backend.experiments.searches.budget import load_cost
from backend.experiments.searches.comparison import compare
from backend.experiments.searches.decide import SearchRow, best_trials
from backend.experiments.searches.objective import final_value
from backend.experiments.searches.schemas import settings_json
from backend.experiments.searches.store import load_events, read_search
from backend.experiments.searches.trial import LIVE_STATUSES, TrialRow
from backend.http.paging import iso_time


def search_json(session: Session, experiment_id: str) -> dict[str, Any]:
    """Return a search as `schemas.SearchItem`; raise NotFound if the experiment is not a search."""
    search, trials, runs = read_search(session, experiment_id)
    best = best_trials(trials, search.settings, 1)
    finalists = compare(search, trials, runs)
    cost = load_cost(session, experiment_id)
    return {
        "experiment": experiment_id,
        "status": search.status,
        "reason": search.reason,
        "settings": settings_json(search.settings),
        "configurations": search.sweep.cells,
        "seeds": list(search.seeds),
        "knobs": [knob.path for knob in search.sweep.knobs],
        "trials": _trials_json(search, trials),
        "best": best[0].number + 1 if best else None,
        "finalists": finalists.rows,
        "verdict": finalists.verdict,
        "steps_saved": steps_saved(trials),
        "runs": len(runs),
        "hours": cost.hours,
        "money": cost.money,
        "events": [
            {"at": iso_time(event.at), "run": event.run_id, "message": event.message}
            for event in load_events(session, runs)
        ],
    }


def _trials_json(search: SearchRow, trials: Sequence[TrialRow]) -> list[dict[str, Any]]:
    items = []
    for index, trial in enumerate(trials):
        best_so_far = best_trials(trials[: index + 1], search.settings, 1)
        items.append(
            {
                "number": trial.number + 1,
                "values": list(trial.point),
                "variant": trial.variant,
                "run": trial.run.id if trial.run else None,
                "run_name": trial.run.name if trial.run else None,
                "state": trial.state,
                "reason": _trial_reason(trial),
                "step": max(trial.reports, default=0),
                "value": final_value(trial.reports),
                "counts": trial.value is not None,
                "best": best_so_far[0].value if best_so_far else None,
                "chosen": trial.chosen,
            }
        )
    return items


def _trial_reason(trial: TrialRow) -> str:
    if trial.refused or trial.pruned:
        return trial.refused or trial.pruned
    return trial.run.reason if trial.run else ""


def steps_saved(trials: Sequence[TrialRow]) -> float | None:
    """Return the share of the steps of all ended configurations that pruned runs did not train."""
    ended_trials = [trial for trial in trials if trial.run and trial.state not in LIVE_STATUSES]
    planned_steps = sum(trial.run.steps for trial in ended_trials if trial.run)
    if not planned_steps:
        return None
    untrained_steps = sum(
        trial.run.steps - trial.run.last_step
        for trial in ended_trials
        if trial.run and trial.state == "pruned"
    )
    return untrained_steps / planned_steps
