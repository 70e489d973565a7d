"""Axes of curves other than the step: four that increase with the steps, and any metric."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.metrics.lineage import load_lineages
from backend.metrics.series import Points
from backend.storage.models import Run


class BatchSize(NamedTuple):
    """Number of completions in a generation batch up to a step."""

    last_step: int
    completions: int


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis with the metrics from which it is computed."""

    metrics: Sequence[str]
    compute_positions: Callable[[Sequence[Points | None], Sequence[BatchSize]], Points | None]
    """Function that computes the position of each step from the points of
    the metrics, None if there are none.
    """
    needs_sizes: bool = False


def _metric_values(points: Sequence[Points | None], _sizes: Sequence[BatchSize]) -> Points | None:
    return points[0]


def _samples(points: Sequence[Points | None], sizes: Sequence[BatchSize]) -> Points | None:
    """Return the cumulative number of sampled completions at each step."""
    batches = points[0]
    if batches is None or not sizes:
        return None
    stretch_index = np.searchsorted([size.last_step for size in sizes], batches.steps)
    sampled_completions = (
        np.nan_to_num(batches.values) * np.array([size.completions for size in sizes])[stretch_index]
    )
    return Points(batches.steps, sampled_completions.cumsum())


def _flops(points: Sequence[Points | None], _sizes: Sequence[BatchSize]) -> Points | None:
    """Return the cumulative number of floating-point operations. Steps without both metrics are left out."""
    rate, seconds = points
    if rate is None or seconds is None:
        return None
    steps, rate_index, seconds_index = np.intersect1d(
        rate.steps, seconds.steps, assume_unique=True, return_indices=True
    )
    step_flops = np.nan_to_num(
        rate.values[rate_index] * seconds.values[seconds_index], posinf=0.0, neginf=0.0
    )
    return Points(steps, step_flops.cumsum())


AXES: Mapping[str, Axis] = {
    "wall": Axis(("time/wall_seconds",), _metric_values),
    "tokens": Axis(("tokens/total",), _metric_values),
    "samples": Axis(("sampling/generated_batches",), _samples, needs_sizes=True),
    "flops": Axis(("throughput/model_flops", "time/step_seconds"), _flops),
}


def find_axis(x: str) -> Axis | None:
    """Return the axis with this name or of this metric, or None for the step."""
    return None if x == "step" else AXES.get(x) or Axis((x,), _metric_values)


def is_metric(x: str) -> bool:
    """Return whether the axis is a metric, which may not increase with the steps."""
    return x != "step" and x not in AXES


def batch_sizes(session: Session, runs: Iterable[str]) -> dict[str, list[BatchSize]]:
    """Return the batch sizes of each run, beginning with those of its ancestors if it is a fork.

    Runs with an unknown batch size are omitted.
    """
    segments = load_lineages(session, runs)
    involved_runs = {segment.run for run_segments in segments.values() for segment in run_segments}
    query = select(Run.id, Run.config["sampling"]).where(Run.id.in_(involved_runs))
    completions = {run: _batch_completions(sampling) for run, sampling in session.execute(query)}
    return {
        run: [
            BatchSize(segment.last_step, size)
            for segment in run_segments
            if (size := completions.get(segment.run))
        ]
        for run, run_segments in segments.items()
        if all(completions.get(segment.run) for segment in run_segments)
    }


MAX_COMPLETIONS = 2**53
"""Limit for the number of completions in a batch, up to which float64 represents all integers exactly."""


def _batch_completions(sampling: Any) -> int:
    """Return the completions per generation batch, or 0 if the config,
    perhaps of another trainer, lacks them.
    """
    settings = sampling if isinstance(sampling, Mapping) else {}
    prompts, group = settings.get("prompts_per_step"), settings.get("group_size")
    size = prompts * group if isinstance(prompts, int) and isinstance(group, int) else 0
    return size if 0 <= size < MAX_COMPLETIONS else 0
