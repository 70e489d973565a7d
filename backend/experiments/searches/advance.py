"""Advance a search by one step, which is decided from the rows and written in one transaction.

A step is dropped if the rows have changed since it was decided; the next poll decides again.
"""

from collections.abc import Callable
from typing import Any, cast

from sqlalchemy import CursorResult, select, update
from sqlalchemy.orm import Session

from backend.base.errors import Conflict, InvalidConfig, NotFound
from backend.base.settings import Settings
from backend.config.run import RunConfig
from backend.experiments.launch import PlannedRun, queue_runs
from backend.experiments.searches.budget import lacking_reason
from backend.experiments.searches.decide import (
    SearchRow,
    best_trials,
    end_reason,
    is_compared,
    prune_reason,
    repeated_runs,
    stop_reason,
    wants_another,
)
from backend.experiments.searches.store import ACTIVE_STATUSES, SearchState, read_search
from backend.experiments.searches.trial import LIVE_STATUSES, TrialRow
from backend.experiments.sweep import Cell, make_cell, parse_axes
from backend.runs.checks import resolve_runnable
from backend.runs.events import add_event
from backend.runs.lifecycle import request_action
from backend.runs.workers.store import live_slots
from backend.storage.engine import Sessions, db_now, open_read_session
from backend.storage.models import Run, Search, SearchTrial

Step = Callable[[Session], None]
"""A function that writes a decision to the database."""


def advance(sessions: Sessions, settings: Settings, experiment_id: str) -> bool:
    """Take the next step of a search if one is due; return whether a step was taken."""
    with open_read_session(sessions) as session:
        try:
            state = read_search(session, experiment_id)
        except NotFound:  # deleted in the meantime
            return False
        step = _next_step(session, settings, state)
    if step is None:
        return False
    try:
        with sessions.begin() as session:
            if not _claim_revision(session, state.search):
                return False
            step(session)
    except (Conflict, NotFound):  # a run has ended or was deleted in the meantime
        return False
    return True


def stop_search(session: Session, experiment_id: str) -> None:
    """End a search and stop its runs; raise NotFound if it is not a search, and Conflict if it has ended."""
    row = session.scalar(
        select(Search).where(Search.experiment_id == experiment_id).with_for_update(),
        execution_options={"populate_existing": True},
    )
    if row is None:
        raise NotFound(f"experiment {experiment_id!r} is not a search")
    if row.status not in ACTIVE_STATUSES:
        raise Conflict(f"this search has {row.status}")
    row.status, row.reason, row.revision = "stopped", "stopped by the user", row.revision + 1
    row.ended_at = session.scalar(select(db_now()))
    live_runs = select(Run.id).where(
        Run.experiment_id == experiment_id, Run.status.in_(LIVE_STATUSES), Run.writer.is_(None)
    )
    for run_id in session.scalars(live_runs.where(Run.deleting_at.is_(None)).order_by(Run.id)).all():
        try:
            with session.begin_nested():
                request_action(session, run_id, "stop")
                add_event(session, "search", "the search was stopped by the user", run_id=run_id)
        except (Conflict, NotFound):  # the run has ended or was deleted in the meantime
            continue


def _claim_revision(session: Session, search: SearchRow) -> bool:
    """Lock the search, and return whether no other process has made a decision since the rows were read."""
    unchanged_update = update(Search).where(
        Search.experiment_id == search.experiment_id,
        Search.revision == search.revision,
        Search.status.in_(ACTIVE_STATUSES),
    )
    result = session.execute(
        unchanged_update.values(revision=Search.revision + 1),
        execution_options={"synchronize_session": False},
    )
    return cast("CursorResult[Any]", result).rowcount == 1


def _next_step(session: Session, settings: Settings, state: SearchState) -> Step | None:
    if not state.search.is_active:
        return None
    if state.search.status == "comparing":
        return _finish_comparison(state)
    return _prune(state) or _queue_trial(session, settings, state)


def _prune(state: SearchState) -> Step | None:
    """Return the step that stops runs that are broken or fall behind and records the judged values."""
    from backend.experiments.searches.study import find_prunable  # slow to import, only for searches

    search, trials = state.search, state.trials
    stop_reasons = {
        trial.number: reason for trial in trials if (reason := stop_reason(trial, search.settings))
    }
    trials_with_new_values = [
        trial for trial in trials if trial.state in LIVE_STATUSES and _newest_step(trial) > trial.judged_step
    ]
    if not stop_reasons and not trials_with_new_values:
        return None
    steps = max((trial.run.steps for trial in trials if trial.run), default=1)
    prune_by_number = find_prunable(trials, search.settings, steps) if trials_with_new_values else {}
    prune_reasons = {
        trial.number: prune_reason(trial, search.settings)
        for trial in trials_with_new_values
        if prune_by_number.get(trial.number)
        and not trial.pruned
        and not (trial.run and trial.run.requested_action)
    }

    def write(session: Session) -> None:
        for trial in trials_with_new_values:
            _update_trial(session, search, trial.number, judged_step=_newest_step(trial))
        for trial in trials:
            reason = stop_reasons.get(trial.number) or prune_reasons.get(trial.number)
            if reason and trial.run:
                _update_trial(session, search, trial.number, pruned=reason)
                request_action(session, trial.run.id, "prune")
                step = _newest_step(trial) or None
                add_event(session, "search", f"pruned: {reason}", run_id=trial.run.id, step=step)

    return write


def _newest_step(trial: TrialRow) -> int:
    return max(trial.reports, default=0)


def _update_trial(session: Session, search: SearchRow, number: int, **values: Any) -> None:
    is_trial = (SearchTrial.experiment_id == search.experiment_id, SearchTrial.number == number)
    session.execute(update(SearchTrial).where(*is_trial).values(**values))


def _queue_trial(session: Session, settings: Settings, state: SearchState) -> Step | None:
    """Return the step that queues the next configuration, or that starts the comparison if there is none."""
    search, trials = state.search, state.trials
    ended_reason = end_reason(trials, search.sweep)
    is_slot_free = not ended_reason and any(slot.run_id is None for slot in live_slots(session))
    if not ended_reason and not wants_another(trials, search.settings, is_slot_free=is_slot_free):
        return None
    if not ended_reason:
        try:
            next_cell = _next_cell(state)
        except InvalidConfig as error:  # a config of a version with other fields or presets
            next_cell, ended_reason = None, f"its values cannot be read any more: {error.errors[0].message}"
        if next_cell is None:
            ended_reason = ended_reason or "every combination of the values was tried"
        else:
            cell, config = _check_cell(settings, search, next_cell[1])
            if not isinstance(config, str):
                runs_wanted = 1 + min(search.settings.top, len(trials) + 1) * (len(search.seeds) - 1)
                search_facts = search.experiment_id, search.settings, state.runs
                ended_reason = lacking_reason(
                    session, settings, *search_facts, config, additional_runs=runs_wanted
                )
            if not ended_reason:
                return _begin_trial(state, next_cell[0], cell, config)
    if any(trial.state in LIVE_STATUSES for trial in trials):
        return None  # the values of these runs are still missing
    return _choose_finalists(session, settings, state, ended_reason)


def _next_cell(state: SearchState) -> tuple[tuple[Any, ...], Cell | str] | None:
    """Return the values to try next with their cell, or with the reason why they make none; None if all were
    tried.
    """
    from backend.experiments.searches.study import next_point  # also slow to import

    search, trials = state.search, state.trials
    axes = parse_axes(search.base, search.variant, search.sweep)
    point = next_point(trials, axes, search.settings, search.sweep.seed)
    if point is None:
        return None
    try:
        cell = make_cell(search.base, search.variant, search.sweep, axes, point)
    except InvalidConfig as error:
        return point, error.errors[0].message
    if any(trial.variant == cell.variant["name"] for trial in trials):
        return point, f"another configuration has the name {cell.variant['name']!r}"
    return point, cell


def _check_cell(
    settings: Settings, search: SearchRow, cell: Cell | str
) -> tuple[Cell | None, RunConfig | str]:
    """Return the cell with its config, or with the reason why it cannot run."""
    if isinstance(cell, str):
        return None, cell
    try:
        return cell, resolve_runnable(settings, search.base, cell.variant, search.seeds[0])
    except InvalidConfig as error:
        return cell, f"{error.errors[0].path}: {error.errors[0].message}"


def _begin_trial(
    state: SearchState, point: tuple[Any, ...], cell: Cell | None, config: RunConfig | str
) -> Step:
    search, number = state.search, len(state.trials)
    name = str(cell.variant["name"]) if cell else f"configuration {number}"

    def write(session: Session) -> None:
        run_id, rejection_reason = None, config if isinstance(config, str) else ""
        if not isinstance(config, str):
            reason = f"queued by a search: configuration {number + 1}"
            planned_runs = [PlannedRun(name, search.seeds[0], config, reason=reason)]
            [run_id] = queue_runs(session, search.experiment_id, planned_runs, search.run_fields)
            add_event(session, "search", f"configuration {number + 1} was chosen", run_id=run_id)
        session.add(
            SearchTrial(
                experiment_id=search.experiment_id,
                number=number,
                point=list(point),
                variant=name,
                run_id=run_id,
                refused=rejection_reason,
            )
        )
        session.flush()

    return write


def _choose_finalists(session: Session, settings: Settings, state: SearchState, ended_reason: str) -> Step:
    """Return the step that runs the best configurations with as many other seeds as the budget allows."""
    search = state.search
    best = best_trials(state.trials, search.settings, search.settings.top)
    configs = {trial.number: _load_config(session, trial) for trial in best}
    best = [trial for trial in best if configs[trial.number] is not None]
    first_config = next(iter(config for config in configs.values() if config is not None), None)
    seeds = list(search.seeds[1:])
    search_facts = search.experiment_id, search.settings, state.runs
    while (
        first_config
        and seeds
        and lacking_reason(
            session, settings, *search_facts, first_config, additional_runs=len(best) * len(seeds)
        )
    ):
        seeds.pop()
    if not best or not seeds:
        explanation = "no configuration has a value" if not best else _missing_trial_reason(search)
        return _finish(state, f"{ended_reason}; {explanation}" if explanation else ended_reason)

    def write(session: Session) -> None:
        planned_runs = [
            PlannedRun(
                trial.variant,
                seed,
                config.with_(seed=seed),
                reason=f"queued by a search: configuration {trial.number + 1} is among the best {len(best)}",
            )
            for seed in seeds
            for trial in best
            if (config := configs[trial.number]) is not None
        ]
        queue_runs(session, search.experiment_id, planned_runs, search.run_fields)
        for trial in best:
            _update_trial(session, search, trial.number, chosen=True)
            if trial.run:
                message = f"chosen to be run with {len(seeds)} remaining seeds"
                add_event(session, "search", message, run_id=trial.run.id)
        _set_search(session, search, status="comparing", reason=ended_reason)

    return write


def _missing_trial_reason(search: SearchRow) -> str:
    return "the budget leaves no room for the remaining seeds" if len(search.seeds) > 1 else ""


def _load_config(session: Session, trial: TrialRow) -> RunConfig | None:
    """Return the config of a configuration's run; None if this version cannot read it."""
    document = session.scalar(select(Run.config).where(Run.id == trial.run.id)) if trial.run else None
    try:
        return RunConfig.model_validate(document) if document else None
    except ValueError:
        return None


def _finish_comparison(state: SearchState) -> Step | None:
    runs = repeated_runs(state.search, state.trials, state.runs)
    return _finish(state, state.search.reason) if is_compared(runs) else None


def _finish(state: SearchState, reason: str) -> Step:
    best = next((trial.run for trial in state.trials if trial.chosen and trial.run), None)

    def write(session: Session) -> None:
        _set_search(session, state.search, status="finished", reason=reason, ended_at=db_now())
        # The event tells open pages, since no run changes any more.
        message = f"the search finished: {reason}"
        add_event(session, "search", message, run_id=best.id if best else None)

    return write


def _set_search(session: Session, search: SearchRow, **values: Any) -> None:
    session.execute(update(Search).where(Search.experiment_id == search.experiment_id).values(**values))
