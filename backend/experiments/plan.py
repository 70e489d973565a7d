"""Plan an experiment: its variants, their errors, and the cost of all its runs."""

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
from backend.experiments.sweep import MAX_PLANNED_CELLS, Cell, Sweep
from backend.runs.cost import HOUR_SECONDS, newest_price

Costs = dict[str, float | None]
NO_COSTS: Costs = {"seconds_low": None, "seconds_high": None, "tokens_at_most": None}


def planned_experiment(session: Session, settings: Settings, request: ExperimentRequest) -> dict[str, Any]:
    """Return the plan as `schemas.ExperimentPlan`; raise InvalidConfig if it is invalid."""
    cells, seeds = make_cells(request), len(request.seeds)
    checked_configs = list(resolve_configs(settings, request, cells))
    valid_configs = [config for config in checked_configs if isinstance(config, RunConfig)]
    times = iter(estimate_durations(session, valid_configs, settings.models_dir))
    slots = iter(count_slots(session, valid_configs))
    cells_json, slot_times = [], []
    for cell, config in zip(cells, checked_configs, strict=True):
        if not isinstance(config, RunConfig):
            errors = [{"path": error.path, "message": error.message} for error in config.errors]
            cells_json.append(_cell(cell) | NO_COSTS | {"errors": errors})
            continue
        time = next(times)
        tokens = float(max_tokens(config))
        costs = {"seconds_low": time.low, "seconds_high": time.high, "tokens_at_most": tokens}
        cells_json.append(_cell(cell) | costs | {"errors": []})
        slot_count = next(slots)
        slot_times.append(
            {**costs, "seconds_low": time.low * slot_count, "seconds_high": time.high * slot_count}
        )
    knobs = [knob.path for knob in request.sweep.knobs] if request.sweep else []
    if request.sweep is not None and is_search(request):
        search, total = _planned_search(request.sweep, len(request.seeds), cells_json, slot_times)
        if search_errors := objective_errors(request, valid_configs) + budget_errors(session, request):
            raise InvalidConfig(search_errors)
        return {"knobs": knobs, "cells": cells_json, "search": search, "runs": search["runs"]} | (
            total | _money_range(session, total)
        )
    total = {key: seeds * sum(times_of_cell[key] for times_of_cell in slot_times) for key in NO_COSTS}
    plan = {"knobs": knobs, "cells": cells_json, "search": None, "runs": len(cells) * seeds}
    return plan | total | _money_range(session, total)


def _planned_search(
    sweep: Sweep, seeds: int, cells: Sequence[Mapping[str, Any]], costs: Sequence[Mapping[str, float]]
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return a `schemas.PlannedSearch` and its costs, which assume that runs cost as much as the sampled
    cells.

    `costs` are those of the runnable cells. The minimum assumes that all configurations except the best are
    pruned at the first rung. The budget in hours limits both minimum and maximum.
    """
    trials = min(sweep.cells, len(cells)) if len(cells) < MAX_PLANNED_CELLS else sweep.cells
    top = min(sweep.search.top, trials)
    additional_runs = top * (seeds - 1)
    runs = trials + additional_runs
    min_seconds = min((cell["seconds_low"] for cell in costs), default=0.0)
    max_seconds = max((cell["seconds_high"] for cell in costs), default=0.0)
    share = 1.0 if sweep.search.pruner == "none" else sweep.search.first_rung
    low = min_seconds * ((trials - top) * share + top + additional_runs)
    budget = sweep.search.hours * HOUR_SECONDS if sweep.search.hours else math.inf
    total = {
        "seconds_low": min(low, budget),
        "seconds_high": min(max_seconds * runs, budget),
        "tokens_at_most": runs * max((cell["tokens_at_most"] for cell in costs), default=0.0),
    }
    sizes = {"configurations": trials, "additional_runs": additional_runs, "top": top, "runs": runs}
    return sizes | {"drawn": len(cells), "refused": len(cells) - len(costs)}, total


def _cell(cell: Cell) -> dict[str, Any]:
    return {"variant": cell.variant["name"], "of": cell.variant_name, "values": list(cell.values)}


def _money_range(session: Session, total: Mapping[str, float]) -> dict[str, Any]:
    """Return the cost of the time at the newest price."""
    newest = newest_price(session)
    if newest is None:
        return {"currency": None, "money_low": None, "money_high": None}
    price, currency = newest
    low, high = (total[key] / HOUR_SECONDS * price for key in ("seconds_low", "seconds_high"))
    return {"currency": currency, "money_low": low, "money_high": high}
