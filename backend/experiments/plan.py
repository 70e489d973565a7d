"""The plan of an experiment: its variants, what is wrong with them, and what all of its runs would take."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.config.run import RunConfig
from backend.config.sizes import most_tokens
from backend.db.models import Attempt
from backend.experiments.duration_estimate import durations
from backend.experiments.launch import cells_of, configs_of
from backend.experiments.schemas import ExperimentRequest
from backend.experiments.sweep import Cell
from backend.runs.cost import HOUR
from backend.settings import Settings

Costs = dict[str, float | None]
NO_COSTS: Costs = {"seconds_low": None, "seconds_high": None, "tokens_at_most": None}


def planned_experiment(session: Session, settings: Settings, request: ExperimentRequest) -> dict[str, Any]:
    """schemas.ExperimentPlan; raises InvalidConfig for unreadable values and too many runs."""
    cells, seeds = cells_of(request), len(request.seeds)
    found = list(configs_of(settings, request, cells))
    right = [config for config in found if isinstance(config, RunConfig)]
    times = iter(durations(session, right, settings.models_dir))
    shown = []
    for cell, config in zip(cells, found, strict=True):
        if not isinstance(config, RunConfig):
            errors = [{"path": error.path, "message": error.message} for error in config.errors]
            shown.append(_cell(cell) | NO_COSTS | {"errors": errors})
            continue
        time = next(times)
        tokens = float(most_tokens(config))
        costs = {"seconds_low": time.low, "seconds_high": time.high, "tokens_at_most": tokens}
        shown.append(_cell(cell) | costs | {"errors": []})
    total = {key: seeds * sum(cell[key] or 0.0 for cell in shown) for key in NO_COSTS}
    knobs = [knob.path for knob in request.sweep.knobs] if request.sweep else []
    return {"knobs": knobs, "cells": shown, "runs": len(cells) * seeds, **total, **_money(session, total)}


def _cell(cell: Cell) -> dict[str, Any]:
    return {"variant": cell.variant["name"], "of": cell.of, "values": list(cell.values)}


def _money(session: Session, total: dict[str, float]) -> dict[str, Any]:
    """The time at the price of the newest attempt whose slot had one."""
    query = select(Attempt.slot_price, Attempt.currency).where(
        Attempt.slot_price.is_not(None), Attempt.currency != ""
    )
    newest = session.execute(query.order_by(Attempt.started_at.desc()).limit(1)).first()
    if newest is None:
        return {"currency": None, "money_low": None, "money_high": None}
    price, currency = newest
    low, high = (total[key] / HOUR * float(price or 0) for key in ("seconds_low", "seconds_high"))
    return {"currency": currency, "money_low": low, "money_high": high}
