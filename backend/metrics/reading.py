"""Read the valid metric points of runs from the database, with the newest attempt's value of each step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sqlalchemy import Row
from sqlalchemy.orm import Session

from backend.metrics.attempts import Limit, load_limits_and_sealed_steps, valid_row_mask
from backend.metrics.axes import batch_sizes, find_axis
from backend.metrics.blocks import Outlined, Stored, read_blocks, read_tail
from backend.metrics.lineage import ALL_STEPS, LineageSegment, load_lineages
from backend.metrics.series import Curve, Points
from backend.metrics.store import find_keys
from backend.metrics.windows import StoredPoint, iterate_points, load_run_points


def read_points(
    session: Session,
    runs: Sequence[str],
    metrics: Sequence[str],
    outlined: Outlined | None = None,
    row_by_run: Mapping[str, Row[Any]] | None = None,
) -> dict[tuple[str, str], Points]:
    """Return the valid points of each (run, metric) that has any, including the inherited points of forks.

    With `outlined`, only points that a thinned curve may show are returned for those blocks. `row_by_run` has
    the rows of some runs, as returned by `load_names`.
    """
    keys = find_keys(session, metrics)
    segments = load_lineages(session, runs, row_by_run) if keys else {}
    sources = {segment.run for run_segments in segments.values() for segment in run_segments}
    limits, sealed_steps = load_limits_and_sealed_steps(session, sources)
    if outlined is not None:
        outlined = _inherited_outlines(outlined, segments, limits)
    tails = {
        (run, key): read_tail(session, run, key, sealed_steps[run])
        for run in sources
        for key in keys.values()
    }
    blocks = read_blocks(session, sources, keys.values(), outlined)
    stored = {key_of_curve: packed.add_tail(tails[key_of_curve]) for key_of_curve, packed in blocks.items()}
    points_by_curve = {}
    for run, run_segments in segments.items():
        for name, key in keys.items():
            valid_points = [
                _valid_points(stored[segment.run, key], segment, limits.get(segment.run, ())).shift_attempts(
                    number
                )
                for number, segment in enumerate(run_segments)
            ]
            joined_points = sum(valid_points[1:], valid_points[0])
            if outlined is not None and _has_overlapping_attempts(joined_points):
                return read_points(session, runs, metrics, row_by_run=row_by_run)
            if points := _newest_points(joined_points):
                points_by_curve[run, name] = points
    return points_by_curve


def _has_overlapping_attempts(stored: Stored) -> bool:
    """Return whether attempts overlap, so that an outline may lack points that a newer attempt replaces."""
    if (stored.attempts == stored.attempts[:1]).all():
        return False
    in_order = stored.attempts[np.argsort(stored.steps, kind="stable")]
    return bool((in_order[1:] < in_order[:-1]).any())


def _inherited_outlines(
    outlined: Outlined,
    segments: Mapping[str, Sequence[LineageSegment]],
    limits: Mapping[str, Sequence[Limit]],
) -> Outlined:
    """Return the outlined blocks of all runs in the lineages, with cuts at forks and at resumed attempts."""
    ancestors_by_outlined = {True: set[str](), False: set[str]()}
    for run, run_segments in segments.items():
        ancestors_by_outlined[run in outlined.runs].update(segment.run for segment in run_segments)
    fork_steps = {segment.last_step for run_segments in segments.values() for segment in run_segments}
    hidden_after = {limit.last_step for limits_of_run in limits.values() for limit in limits_of_run}
    return replace(
        outlined,
        runs=ancestors_by_outlined[True] - ancestors_by_outlined[False],
        cut_steps=fork_steps | hidden_after,
    )


def _valid_points(stored: Stored, segment: LineageSegment, limits: Sequence[Limit]) -> Stored:
    """Return the valid points of a metric in a stretch."""
    if not limits and segment.last_step >= ALL_STEPS:
        return stored
    is_valid = valid_row_mask(stored.attempts, stored.steps, limits) & (stored.steps <= segment.last_step)
    return stored if is_valid.all() else stored.select(is_valid)


def _newest_points(stored: Stored) -> Points:
    """Return the points in the order of steps. If several attempts have a step, the newest one counts."""
    if not (stored.steps[1:] > stored.steps[:-1]).all():
        stored = stored.select(np.lexsort((stored.attempts, stored.steps)))
        stored = stored.select(np.append(stored.steps[1:] != stored.steps[:-1], True))
    return Points(stored.steps, stored.values, stored.weights)


def read_curves(
    session: Session,
    runs: Sequence[str],
    metrics: Sequence[str],
    x: str,
    outlined: Outlined | None = None,
    row_by_run: Mapping[str, Row[Any]] | None = None,
) -> dict[tuple[str, str], Curve]:
    """Return the curve of each (run, metric) over an axis (see metrics/axes.py).

    Points whose step has no position on the axis yet are left out. `outlined` must only be used for steps.
    """
    axis = find_axis(x)
    points = read_points(session, runs, [*metrics, *axis.metrics] if axis else metrics, outlined, row_by_run)
    sizes = batch_sizes(session, runs) if axis and axis.needs_sizes else {}
    curves = {}
    for run in runs:
        axis_points = None
        if axis:
            axis_points = axis.compute_positions(
                [points.get((run, name)) for name in axis.metrics], sizes.get(run, ())
            )
        for metric in metrics:
            if (points_of_curve := points.get((run, metric))) is not None:
                curve = (
                    _curve_along(points_of_curve, axis_points)
                    if axis
                    else Curve(
                        points_of_curve.steps,
                        points_of_curve.steps.astype(float),
                        points_of_curve.values,
                        points_of_curve.weights,
                    )
                )
                if len(curve):
                    curves[run, metric] = curve
    return curves


def _curve_along(points: Points, axis: Points | None) -> Curve:
    if axis is None:
        no_values = np.empty(0)
        return Curve(np.empty(0, np.int64), no_values, no_values)
    index = np.clip(np.searchsorted(axis.steps, points.steps), 0, len(axis.steps) - 1)
    has_x = (axis.steps[index] == points.steps) & np.isfinite(axis.values[index])
    return Curve(points.steps[has_x], axis.values[index][has_x], points.values[has_x])


def valid_rows(session: Session, run_id: str, *, up_to: int = ALL_STEPS) -> Iterator[StoredPoint]:
    """Yield the valid points up to a step, ordered by step, attempt and name.

    The points of a fork begin with those of its ancestors.
    """
    segments = load_lineages(session, [run_id])[run_id]
    limited_segments = [segment._replace(last_step=min(up_to, segment.last_step)) for segment in segments]
    for run_points in load_run_points(session, limited_segments):
        yield from iterate_points(session, run_points)
