"""Build the matrix: a number per run and column, the differences of rows, and the verdicts on them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from backend.config.metrics import Better, find_metric
from backend.experiments.comparable import incomparable_reasons
from backend.experiments.matrix.inference import Looks
from backend.experiments.matrix.judgement import UNTESTED, Entry, Judgement, judge
from backend.experiments.matrix.readings import (
    THRESHOLDS,
    Column,
    best_value,
    cut_at,
    mean_height,
    sparkline,
    threshold_position,
)
from backend.metrics.ending import curve_end, is_evaluation
from backend.metrics.reading import read_points
from backend.metrics.series import Curve, Floats, Points
from backend.metrics.statistics import MAX_FINITE, spread
from backend.runs.store import verdict_json
from backend.storage.models import Run
from backend.storage.numbers import spell

TOKENS_METRIC = "tokens/total"
METRIC_BY_READING = {"tokens_to": TOKENS_METRIC, "seconds_to": "time/wall_seconds"}
"""Metric of the cost of reaching a threshold, by reading."""
UNIT_BY_READING = {"steps_to": "steps", "tokens_to": "tokens", "seconds_to": "s"}
ENDED_STATUSES = ("finished", "stopped")
"""Statuses of runs that are used in differences: a stop rule is part of a method, but a failure is not."""

Curves = Mapping[tuple[str, str], Curve]


@dataclass(frozen=True, slots=True)
class Row:
    """A variant and its runs, in launch order."""

    name: str
    runs: Sequence[Run]

    @property
    def counted_runs(self) -> list[Run]:
        """The first run of each seed."""
        firsts: dict[int, Run] = {}
        for run in self.runs:
            firsts.setdefault(run.seed, run)
        return list(firsts.values())


def make_matrix(
    session: Session,
    rows: Sequence[Row],
    columns: Sequence[Column],
    *,
    baseline: int,
    planned_seeds: int | None,
) -> dict[str, Any]:
    """Return the matrix as `schemas.Matrix`, without the field `missing`."""
    looks, notes = _choose_test(rows, planned_seeds)
    runs = [run for row in rows for run in row.counted_runs]
    names = dict.fromkeys([*(column.metric for column in columns), TOKENS_METRIC, *_cost_metrics(columns)])
    points = read_points(session, [run.id for run in runs], list(names))
    curves = {key: _curve(points_of_run) for key, points_of_run in points.items()}
    tokens = _common_tokens([run for run in runs if run.status in ENDED_STATUSES] or runs, curves)
    if tokens is None and any(column.reading == "equal_tokens" for column in columns):
        notes.append(f"No values at equal tokens: not every run has recorded {TOKENS_METRIC}.")
    read = _Reader(rows, curves, tokens)
    entries = {
        column: [_entry(row, column, read) for row in rows]
        for column in columns
        if any((run.id, column.metric) in curves for run in runs)
    }
    judgements = judge(
        entries,
        baseline=baseline,
        looks=looks,
        planned_seeds=planned_seeds if looks == "planned" else None,
        incomparable_reasons={
            (column, index): reason
            for column in entries
            for index, reason in enumerate(_incomparable_reasons(column.metric, rows, rows[baseline]))
        },
    )
    return {
        "baseline": baseline,
        "columns": [_column_json(column) for column in entries],
        "rows": [
            {
                "variant": row.name,
                "runs": [_run_json(run, run in row.counted_runs) for run in row.runs],
                "cells": {
                    column.key: _cell(
                        row, entry[index], judgements[column, index], read.line(row, column.metric)
                    )
                    for column, entry in entries.items()
                },
            }
            for index, row in enumerate(rows)
        ],
        "looks": looks,
        "planned": planned_seeds if looks == "planned" else None,
        "tests": sum(judgement.verdict not in UNTESTED for judgement in judgements.values()),
        "tokens": tokens,
        "notes": notes,
    }


def _incomparable_reasons(metric: str, rows: Sequence[Row], base: Row) -> list[str]:
    """Return for each row a sentence why a metric cannot be compared; empty for comparable rows."""
    first = base.counted_runs[0]
    if differing_paths := {
        path for run in base.counted_runs for path in incomparable_reasons(metric, run, first)
    }:
        return [f"The runs of the baseline have several scales: {', '.join(sorted(differing_paths))}."] * len(
            rows
        )
    return [_apart_from(metric, row, first) for row in rows]


def _apart_from(metric: str, row: Row, first: Run) -> str:
    """Return a sentence if a run of the row has another scale than the baseline's first run, else empty."""
    scales = [incomparable_reasons(metric, run, first) for run in row.counted_runs]
    if not any(scales):
        return ""
    text = "Its scale differs" if all(scales) else "The scale of some of its runs differs"
    return (
        f"{text} from the baseline's: {', '.join(dict.fromkeys(path for paths in scales for path in paths))}."
    )


def _cost_metrics(columns: Sequence[Column]) -> list[str]:
    """Return the metrics of the costs at which thresholds are reached."""
    return [METRIC_BY_READING[column.reading] for column in columns if column.reading in METRIC_BY_READING]


def _choose_test(rows: Sequence[Row], planned_seeds: int | None) -> tuple[Looks, list[str]]:
    """Return the applicable test, with notes on seeds that were run several times or not planned."""
    notes = [
        f"{row.name} has several runs of seed {seed}; only the one launched first counts."
        for row in rows
        for seed in sorted({run.seed for run in row.runs if run not in row.counted_runs})
    ]
    if planned_seeds is None:
        return "any time", notes
    if long_rows := [row.name for row in rows if len(row.counted_runs) > planned_seeds]:
        notes.append(
            f"{', '.join(long_rows)} has more than the {planned_seeds} planned seeds: "
            "intervals are always-valid."
        )
        return "any time", notes
    return "planned", notes


def _curve(points: Points) -> Curve:
    return Curve(points.steps, points.steps.astype(float), points.values)


def _common_tokens(runs: Sequence[Run], curves: Curves) -> float | None:
    """Return the largest number of tokens that every run has reached; None if a run has not recorded any."""
    token_counts = [
        float(np.nanmax(curve.values))
        for run in runs
        if (curve := curves.get((run.id, TOKENS_METRIC))) is not None and np.isfinite(curve.values).any()
    ]
    return min(token_counts) if token_counts and len(token_counts) == len(runs) else None


def metric_direction(metric: str) -> Better:
    """Return the direction of improvement of a metric; empty if it has none or is not in the catalog."""
    metric_info = find_metric(metric)
    return metric_info.better if metric_info else ""


class _Reader:
    """Reads one number per run and column from curves."""

    def __init__(self, rows: Sequence[Row], curves: Curves, tokens: float | None) -> None:
        self._curves = curves
        self._tokens = tokens
        counted_runs = [run for row in rows for run in row.counted_runs]
        counted_runs = [run for run in counted_runs if run.status in ENDED_STATUSES] or counted_runs
        self._last_step: dict[str, int] = {}
        for run in counted_runs:
            for (owner, metric), curve in curves.items():
                if owner == run.id:
                    end = int(curve.steps[-1])
                    self._last_step[metric] = min(end, self._last_step.get(metric, end))

    def value(self, run: Run, column: Column) -> float | None:
        """Return the value; None if the run has no such value, NaN if the value is not finite."""
        curve = self._curves.get((run.id, column.metric))
        if curve is None:
            return None
        direction = metric_direction(column.metric)
        match column.reading:
            case "best":
                return best_value(curve, direction)
            case "auc":
                return mean_height(curve, self._last_step.get(column.metric, int(curve.steps[-1])))
            case "equal_tokens":
                aligned_curve = self._curve_along(run, curve, TOKENS_METRIC)
                if aligned_curve is None or self._tokens is None:
                    return None
                return curve_end(column.metric, cut_at(*aligned_curve, self._tokens))
            case "steps_to":
                return _find_threshold_position(curve, curve.x, column)
            case "tokens_to" | "seconds_to":
                aligned_curve = self._curve_along(run, curve, METRIC_BY_READING[column.reading])
                return aligned_curve and _find_threshold_position(*aligned_curve, column)
        return curve_end(column.metric, curve)

    def find_unrecorded_metric(self, run: Run, column: Column) -> str:
        """Return the first metric that the column needs and the run does not record, or an empty string."""
        needed_metrics = (column.metric, METRIC_BY_READING.get(column.reading, column.metric))
        return next((metric for metric in needed_metrics if (run.id, metric) not in self._curves), "")

    def count_reached(self, runs: Sequence[Run], column: Column) -> int | None:
        """Return the number of runs that reached the column's threshold, including those without recorded
        cost.
        """
        curves = [self._curves.get((run.id, column.metric)) for run in runs]
        logged_curves = [curve for curve in curves if curve is not None]
        if column.reading not in THRESHOLDS or not logged_curves:
            return None
        return sum(_find_threshold_position(curve, curve.x, column) is not None for curve in logged_curves)

    def _curve_along(self, run: Run, curve: Curve, total: str) -> tuple[Curve, Floats] | None:
        """Return the curve with the tokens or seconds spent at each point; None if they were not recorded."""
        axis = self._curves.get((run.id, total))
        if axis is None:
            return None
        last_index = np.searchsorted(axis.steps, curve.steps, side="right") - 1
        # Nothing is spent before the first step.
        return curve, np.where(last_index >= 0, axis.values[np.maximum(last_index, 0)], 0.0)

    def line(self, row: Row, metric: str) -> list[float | None]:
        """Return the mean curve of a row."""
        curves = [self._curves.get((run.id, metric)) for run in row.counted_runs]
        return sparkline([curve for curve in curves if curve is not None])


def _find_threshold_position(curve: Curve, x: Floats, column: Column) -> float | None:
    """Return the position `x` at which the curve first reaches the column's threshold."""
    return threshold_position(
        curve,
        x,
        column.threshold or 0.0,
        metric_direction(column.metric),
        is_evaluation=is_evaluation(column.metric),
    )


def _entry(row: Row, column: Column, read: _Reader) -> Entry:
    runs = row.counted_runs
    values = {run.seed: read.value(run, column) for run in runs}
    ended_seeds = {run.seed for run in runs if run.status in ENDED_STATUSES}
    unrecorded_metrics = {
        run.seed: unrecorded_metric
        for run in runs
        if (unrecorded_metric := read.find_unrecorded_metric(run, column))
    }
    return Entry(row.name, values, ended_seeds, unrecorded_metrics, read.count_reached(runs, column))


def _column_json(column: Column) -> dict[str, Any]:
    metric_info = find_metric(column.metric)
    unit = UNIT_BY_READING.get(column.reading, metric_info.unit if metric_info else "")
    as_json = {"unit": unit, "better": column.better_direction(metric_direction(column.metric))}
    return {"key": column.key, **asdict(column), **as_json}


def _run_json(run: Run, counts: bool) -> dict[str, Any]:  # noqa: FBT001 - a field of the response
    as_json = {"id": run.id, "name": run.name, "variant": run.variant, "seed": run.seed, "status": run.status}
    return as_json | verdict_json(run) | {"counts": counts}


def _cell(row: Row, entry: Entry, judgement: Judgement, line: list[float | None]) -> dict[str, Any]:
    finite = [value for value in entry.values.values() if value is not None and abs(value) < MAX_FINITE]
    counted_ids = {run.id for run in row.counted_runs}
    values = [entry.values[run.seed] if run.id in counted_ids else None for run in row.runs]
    return {
        **asdict(spread(finite)),
        "values": [None if value is None else spell(value) for value in values],
        "sparkline": line,
        **judgement.as_json(),
    }
