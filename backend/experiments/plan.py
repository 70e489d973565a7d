"""The plan of an experiment: its variants, what is wrong with them, and what all of its runs would take."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from backend.base.errors import InvalidConfig
from backend.base.settings import Settings
from backend.config.run import RunConfig
from backend.config.sizes import max_tokens
from backend.experiments.duration_estimate import count_slots, estimate_durations
from backend.experiments.launch import budget_errors, is_search, make_cells, objective_errors, resolve_configs
from backend.experiments.schemas import ExperimentRequest
from backend.experiments.sweep import DRAWN, Cell, Sweep
from backend.runs.cost import HOUR, newest_price

Costs = dict[str, float | None]
NO_COSTS: Costs = {"seconds_low": None, "seconds_high": None, "tokens_at_most": None}


def planned_experiment(session: Session, settings: Settings, request: ExperimentRequest) -> dict[str, Any]:
    """schemas.ExperimentPlan; raises InvalidConfig for unreadable values and too many runs."""
    cells, seeds = make_cells(request), len(request.seeds)
    checked_configs = list(resolve_configs(settings, request, cells))
    right = [config for config in checked_configs if isinstance(config, RunConfig)]
    times = iter(estimate_durations(session, right, settings.models_dir))
    slots = iter(count_slots(session, right))
    shown, slot_times = [], []
    for cell, config in zip(cells, checked_configs, strict=True):
        if not isinstance(config, RunConfig):
            errors = [{"path": error.path, "message": error.message} for error in config.errors]
            shown.append(_cell(cell) | NO_COSTS | {"errors": errors})
            continue
        time = next(times)
        tokens = float(max_tokens(config))
        costs = {"seconds_low": time.low, "seconds_high": time.high, "tokens_at_most": tokens}
        shown.append(_cell(cell) | costs | {"errors": []})
        width = next(slots)
        slot_times.append({**costs, "seconds_low": time.low * width, "seconds_high": time.high * width})
    knobs = [knob.path for knob in request.sweep.knobs] if request.sweep else []
    if request.sweep is not None and is_search(request):
        search, total = _planned_search(request.sweep, len(request.seeds), shown, slot_times)
        if refused := objective_errors(request, right) + budget_errors(session, request):
            raise InvalidConfig(refused)
        return {"knobs": knobs, "cells": shown, "search": search, "runs": search["runs"]} | (
            total | _money_range(session, total)
        )
    total = {key: seeds * sum(times_of_cell[key] for times_of_cell in slot_times) for key in NO_COSTS}
    plan = {"knobs": knobs, "cells": shown, "search": None, "runs": len(cells) * seeds}
    return plan | total | _money_range(session, total)


def _planned_search(
    sweep: Sweep, seeds: int, cells: Sequence[Mapping[str, Any]], costs: Sequence[Mapping[str, float]]
) -> tuple[dict[str, Any], dict[str, float]]:
    """schemas.PlannedSearch, and its costs: every run counts as much as the drawn cells that can run.

    `costs` are those of the cells that can run. At least: every configuration but the best is pruned at the
    first rung. The budget in hours caps both.
    """
    trials = min(sweep.cells, len(cells)) if len(cells) < DRAWN else sweep.cells
    top = min(sweep.search.top, trials)
    further = top * (seeds - 1)
    runs = trials + further
    min_seconds = min((cell["seconds_low"] for cell in costs), default=0.0)
    max_seconds = max((cell["seconds_high"] for cell in costs), default=0.0)
    share = 1.0 if sweep.search.pruner == "none" else sweep.search.first_rung
    low = min_seconds * ((trials - top) * share + top + further)
    budget = sweep.search.hours * HOUR if sweep.search.hours else math.inf
    total = {
        "seconds_low": min(low, budget),
        "seconds_high": min(max_seconds * runs, budget),
        "tokens_at_most": runs * max((cell["tokens_at_most"] for cell in costs), default=0.0),
    }
    shown = {"configurations": trials, "further_runs": further, "top": top, "runs": runs}
    return shown | {"drawn": len(cells), "refused": len(cells) - len(costs)}, total


def _cell(cell: Cell) -> dict[str, Any]:
    return {"variant": cell.variant["name"], "of": cell.of, "values": list(cell.values)}


def _money_range(session: Session, total: Mapping[str, float]) -> dict[str, Any]:
    """Return the time at the newest price."""
    newest = newest_price(session)
    if newest is None:
        return {"currency": None, "money_low": None, "money_high": None}
    price, currency = newest
    low, high = (total[key] / HOUR * price for key in ("seconds_low", "seconds_high"))
    return {"currency": currency, "money_low": low, "money_high": high}
