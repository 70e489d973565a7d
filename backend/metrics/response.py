"""Build the response to a request for curves: read, smooth, average, thin and convert them to JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Row
from sqlalchemy.orm import Session

from backend.config.metrics import has_interval, interval_names
from backend.http.paging import split_list
from backend.metrics.axes import is_metric
from backend.metrics.ending import mean_end
from backend.metrics.grouping import CONFIG_PREFIX, group_runs
from backend.metrics.means import MAX_BUCKETS_PER_UNIT, Picture, average_curves, bucket_density
from backend.metrics.reading import read_curves
from backend.metrics.schemas import SpreadKind
from backend.metrics.series import Curve, Floats, Ints
from backend.metrics.statistics import t_975
from backend.metrics.thinning import is_outline_sufficient, thin, thin_all, thin_non_finite
from backend.metrics.view import View
from backend.storage.numbers import spell
from backend.storage.run_lookup import load_configs


def make_answer(
    session: Session,
    run_ids: Sequence[str],
    names: Sequence[str],
    row_by_run: Mapping[str, Row[Any]],
    view: View,
    *,
    group_by: str,
    band: SpreadKind,
    ends: bool,
) -> dict[str, Any]:
    """Return the curves of runs, or the means of groups of runs, as the fields of a `SeriesAnswer`."""
    known_runs = [run for run in run_ids if run in row_by_run]
    intervals = (
        [] if group_by else [end for name in names if has_interval(name) for end in interval_names(name)]
    )
    is_whole = bool(group_by) or ends
    curves = read_visible_curves(
        session, row_by_run, known_runs, [*names, *intervals], view, needs_all_points=is_whole
    )
    if group_by:
        keys = split_list(group_by)
        configs = (
            load_configs(session, known_runs) if any(key.startswith(CONFIG_PREFIX) for key in keys) else {}
        )
        groups = group_runs([row_by_run[run] for run in known_runs], configs, keys)
        items = [item for name in names for item in _group_items(curves, groups, name, band, view)]
    else:
        keys_of_curves = [(run, name) for name in names for run in known_runs if (run, name) in curves]
        items = single_items(row_by_run, curves, keys_of_curves, view)
    if ends:
        items = [item | {"end": _end(item, curves)} for item in items]
    missing_curves = [
        _describe_missing(run, name, row_by_run)
        for run in run_ids
        for name in names
        if (run, name) not in curves
    ]
    return {"series": items, "missing": missing_curves, "cursor": next_cursor(curves, row_by_run)}


def compact_item(item: dict[str, Any], x: str) -> dict[str, Any]:
    """Return an item in compact form, with rounded values and with steps as differences, the first from 0."""
    rounded_values = {
        name: _round_to_seven_digits(item[name]) for name in ("values", "low", "high") if name in item
    }
    distances = item["steps"].copy()
    distances[1:] -= item["steps"][:-1]
    compact = item | rounded_values | {"steps": distances}
    if x == "step":
        del compact["x"]
    return compact


FLOAT32_LIMITS = np.finfo(np.float32)
MAX_FLOAT32_INTEGER = 2**24
"""Largest value up to which all integers are exact in float32."""


def _round_to_seven_digits(values: Any) -> NDArray[np.floating]:
    """Return the values as float32, or unchanged if large integers or extreme values would be lost."""
    float64_values = np.asarray(values, np.float64)
    size = np.abs(float64_values)
    is_beyond = (size > FLOAT32_LIMITS.max) | ((size > 0) & (size < FLOAT32_LIMITS.tiny))
    is_count = (size > MAX_FLOAT32_INTEGER) & (float64_values == np.trunc(float64_values))
    return float64_values if (is_beyond | is_count).any() else float64_values.astype(np.float32)


def read_visible_curves(
    session: Session,
    row_by_run: Mapping[str, Any],
    runs: Sequence[str],
    metrics: Sequence[str],
    view: View,
    *,
    needs_all_points: bool,
) -> dict[tuple[str, str], Curve]:
    """Return the curves. Unless `needs_all_points`, they may have only the points that the view can show."""
    outlined = None if needs_all_points else view.outlined_blocks(row_by_run.values())
    curves = read_curves(session, runs, metrics, view.x, outlined, row_by_run)
    if outlined and not all(
        is_outline_sufficient(curve.select(view.visible(curve)), view.max_points) for curve in curves.values()
    ):
        return read_curves(session, runs, metrics, view.x, row_by_run=row_by_run)
    return curves


def single_items(
    row_by_run: Mapping[str, Row[Any]],
    curves: Mapping[tuple[str, str], Curve],
    keys_of_curves: Sequence[tuple[str, str]],
    view: View,
) -> list[dict[str, Any]]:
    """Return one item for each requested curve, thinned for display."""
    smoothed_curves = [view.smooth(curves[key]) for key in keys_of_curves]
    visible_curves = [curve.select(view.visible(curve)) for curve in smoothed_curves]
    items = []
    for key, curve, indices in zip(
        keys_of_curves, visible_curves, thin_all(visible_curves, view.max_points), strict=True
    ):
        drawn_indices = indices[np.argsort(curve.x[indices], kind="stable")]
        items.append(
            _item_header(row_by_run[key[0]], key[1])
            | _drawn_points(curve, drawn_indices, view)
            | _interval(curves, *key, curve.steps[drawn_indices], view)
        )
    return items


def _item_header(run: Row[Any], metric: str) -> dict[str, Any]:
    header = {"run": run.id, "name": run.name, "metric": metric}
    if run.steps and run.fork_step is not None:
        header["origin"] = {"run": run.parent_run, "step": run.fork_step}
    return header


def _end(item: Mapping[str, Any], curves: Mapping[tuple[str, str], Curve]) -> dict[str, float | int | None]:
    metric = item["metric"]
    return mean_end(metric, [curves[run, metric] for run in item.get("runs") or [item["run"]]])


def _interval(
    curves: Mapping[tuple[str, str], Curve], run: str, metric: str, steps: Ints, view: View
) -> dict[str, Any]:
    """Return the ends of a metric's interval at these steps, if they are
    recorded and the view is not smoothed.
    """
    end_curves = [curves.get((run, name)) for name in interval_names(metric)]
    if None in end_curves or view.smoothing:
        return {}
    values = [dict(zip(end.steps.tolist(), end.values.tolist(), strict=True)) for end in end_curves if end]
    low, high = ([value_by_step.get(step) for step in steps.tolist()] for value_by_step in values)
    return {"low": low, "high": high}


def _drawn_points(curve: Curve, drawn_indices: Any, view: View) -> dict[str, Any]:
    points = curve.select(drawn_indices)
    return {
        "x": points.x,
        "steps": points.steps,
        "values": points.values,
        "non_finite": _non_finite(curve.select(thin_non_finite(curve, view.max_points))),
        "raw_points": curve.raw_points,
    }


def _non_finite(curve: Curve) -> list[dict[str, Any]]:
    return [
        {"step": int(step), "x": float(x), "value": spell(float(value))}
        for step, x, value in zip(curve.steps, curve.x, curve.values, strict=True)
    ]


def _group_items(
    curves: Mapping[tuple[str, str], Curve],
    groups: Mapping[str, Sequence[str]],
    metric: str,
    band: SpreadKind,
    view: View,
) -> Iterator[dict[str, Any]]:
    for group, members in groups.items():
        runs_with_metric = [run for run in members if (run, metric) in curves]
        if runs_with_metric:
            smoothed_curves = [view.smooth(curves[run, metric]) for run in runs_with_metric]
            yield {
                "group": group,
                "name": group,
                "runs": runs_with_metric,
                "metric": metric,
                **mean_item(smoothed_curves, band, view),
            }


def mean_item(curves: Sequence[Curve], band: SpreadKind, view: View) -> dict[str, Any]:
    """Average whole curves and then select the window, so that zooming never changes a mean."""
    density = bucket_density(curves) if is_metric(view.x) else MAX_BUCKETS_PER_UNIT
    quantiles = np.array([np.nan, *map(t_975, range(1, len(curves) + 1))])
    band_of_mean = average_curves(
        curves, band, quantiles, Picture(view.max_points, view.x_min, view.x_max, density)
    )
    mean = band_of_mean.select(view.visible(band_of_mean.mean))
    visible_curves = [curve.select(view.visible(curve)) for curve in curves]
    edges = (mean.low, mean.high) if band else ()
    bucketed_curve = replace(mean.mean, steps=mean.buckets)
    drawn_indices = thin(bucketed_curve, view.max_points, *edges)
    item = _drawn_points(mean.mean, drawn_indices, view) | {"n": mean.n[drawn_indices]}
    item["gaps"] = _non_finite(mean.mean.select(thin_non_finite(bucketed_curve, view.max_points)))
    item["non_finite"] = [
        point for curve in visible_curves for point in _drawn_points(curve, [], view)["non_finite"]
    ]
    item["raw_points"] = sum(map(len, visible_curves))
    if band:
        item |= {
            "low": _replace_nan(mean.low[drawn_indices]),
            "high": _replace_nan(mean.high[drawn_indices]),
        }
    return item


def _replace_nan(values: Floats) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _describe_missing(run: str, metric: str, row_by_run: Mapping[str, Any]) -> dict[str, str]:
    return {"run": run, "metric": metric, "reason": "no points" if run in row_by_run else "no such run"}


def next_cursor(curves: Mapping[tuple[str, str], Curve], row_by_run: Mapping[str, Any]) -> str | None:
    """Return the last step of the slowest run that may still grow, or else of all runs, or None."""
    last_steps = dict.fromkeys(row_by_run, -1)
    for (run, _), curve in curves.items():
        last_steps[run] = max(last_steps.get(run, -1), int(curve.steps[-1]))
    growing_runs = [
        step for run, step in last_steps.items() if row_by_run[run].status in ("queued", "running", "paused")
    ]
    if growing_runs:
        return str(min(growing_runs))
    return str(max(last_steps.values())) if last_steps and max(last_steps.values()) >= 0 else None
