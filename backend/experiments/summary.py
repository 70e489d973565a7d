"""The table of an experiment: variants x metrics over seeds, with honest uncertainty."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from backend.db.models import Run
from backend.db.numbers import spell
from backend.experiments.comparable import apart
from backend.experiments.store import runs_of
from backend.metrics.reading import read_curves
from backend.metrics.statistics import Spread, difference, spread
from backend.runs.store import shown_verdict

METRICS = ("eval/accuracy", "reward/accuracy", "reward/mean", "length/mean", "policy/entropy")
Values = Sequence[float | None]
Kinds = Mapping[str, Values]


def summarize(
    session: Session, experiment_id: str, *, metrics: Sequence[str], baseline: str
) -> dict[str, Any]:
    """schemas.ExperimentSummary."""
    runs = runs_of(session, experiment_id)
    names = metrics or METRICS
    tokens, equal = _at_equal_tokens(session, [run.id for run in runs], names)
    variants: dict[str, list[Run]] = {}
    for run in runs:
        variants.setdefault(run.variant, []).append(run)
    base = variants.get(baseline, [])
    first = base or next(iter(variants.values()), [])
    rows = [_row(name, members, names, equal, base, first) for name, members in variants.items()]
    return {"experiment": experiment_id, "metrics": list(names), "tokens": tokens, "variants": rows}


def _row(
    name: str,
    runs: Sequence[Run],
    metrics: Sequence[str],
    equal: Mapping[tuple[str, str], float],
    base: Sequence[Run],
    scaled_as: Sequence[Run],
) -> dict[str, Any]:
    shown = [
        {"id": run.id, "name": run.name, "variant": run.variant, "seed": run.seed, "status": run.status}
        | shown_verdict(run)
        for run in runs
    ]
    found = {}
    for metric in metrics:
        own, other = _kinds(runs, metric, equal), _kinds(base, metric, equal)
        reasons = apart(metric, runs[0], scaled_as[0])
        cells = {kind: _cell(own[kind], other[kind] if base and not reasons else None) for kind in own}
        found[metric] = {"best": None, "equal_tokens": None, **cells, "not_comparable": reasons}
    return {"variant": name, "runs": shown, "metrics": found}


def _kinds(runs: Sequence[Run], metric: str, equal: Mapping[tuple[str, str], float]) -> Kinds:
    """One value per run: at the end, at its best, at equal tokens; None where a run has none."""
    last = [_number(run.summary.get("last", {}).get(metric)) for run in runs]
    best = [_number(run.summary.get("best", {}).get(metric, {}).get("value")) for run in runs]
    return {"last": last, "best": best, "equal_tokens": [equal.get((run.id, metric)) for run in runs]}


def _number(value: Any) -> float | None:
    """Of a spelled number; `float` reads "NaN" and "Infinity" too."""
    return None if value is None else float(value)


def _cell(own: Values, base: Values | None) -> dict[str, Any]:
    mine = _spread(own)
    cell = asdict(mine) | {
        "values": [None if value is None else spell(value) for value in own],
        "delta": None,
    }
    if base is not None and (delta := difference(mine, _spread(base))) is not None:
        cell["delta"] = asdict(delta)
    return cell


def _spread(values: Values) -> Spread:
    return spread([value for value in values if value is not None])


def _at_equal_tokens(
    session: Session, runs: Sequence[str], metrics: Sequence[str]
) -> tuple[float | None, dict[tuple[str, str], float]]:
    """The last value of each metric at or before the largest number of tokens that every run has reached."""
    curves = read_curves(session, runs, ["tokens/total", *metrics], "tokens")
    reached = [
        float(np.max(curves[run, "tokens/total"].x)) for run in runs if (run, "tokens/total") in curves
    ]
    if not reached or len(reached) < len(runs):
        return None, {}
    tokens = min(reached)
    found = {}
    for key, curve in curves.items():
        place = int(np.searchsorted(curve.x, tokens, side="right"))
        if place:
            found[key] = float(curve.values[place - 1])
    return tokens, found
