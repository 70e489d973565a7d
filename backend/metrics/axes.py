"""Axes in addition to the step, for curves: four that rise with the steps, and any metric."""

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
    """Completions that one generation batch has, up to a step."""

    last_step: int
    completions: int


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: the metrics that it is made from, and how."""

    metrics: Sequence[str]
    along: Callable[[Sequence[Points | None], Sequence[BatchSize]], Points | None]
    """Function from the metrics' points (None if there are none) to the position of each step on the axis."""
    needs_sizes: bool = False


def _metric_values(points: Sequence[Points | None], _sizes: Sequence[BatchSize]) -> Points | None:
    return points[0]


def _samples(points: Sequence[Points | None], sizes: Sequence[BatchSize]) -> Points | None:
    """Return the number of completions sampled so far."""
    batches = points[0]
    if batches is None or not sizes:
        return None
    stretch_index = np.searchsorted([size.last_step for size in sizes], batches.steps)
    sampled = np.nan_to_num(batches.values) * np.array([size.completions for size in sizes])[stretch_index]
    return Points(batches.steps, sampled.cumsum())


def _flops(points: Sequence[Points | None], _sizes: Sequence[BatchSize]) -> Points | None:
    """Return the floating-point operations so far; a step without both metrics counts as 0."""
    rate, seconds = points
    if rate is None or seconds is None:
        return None
    steps, left, right = np.intersect1d(rate.steps, seconds.steps, assume_unique=True, return_indices=True)
    spent = np.nan_to_num(rate.values[left] * seconds.values[right], posinf=0.0, neginf=0.0)
    return Points(steps, spent.cumsum())


AXES: Mapping[str, Axis] = {
    "wall": Axis(("time/wall_seconds",), _metric_values),
    "tokens": Axis(("tokens/total",), _metric_values),
    "samples": Axis(("sampling/generated_batches",), _samples, needs_sizes=True),
    "flops": Axis(("throughput/model_flops", "time/step_seconds"), _flops),
}


def find_axis(x: str) -> Axis | None:
    """Return the axis of a word or of a metric; None for the step."""
    return None if x == "step" else AXES.get(x) or Axis((x,), _metric_values)


def is_metric(x: str) -> bool:
    """Return whether curves are drawn over a metric, which need not rise with the steps."""
    return x != "step" and x not in AXES


def batch_sizes(session: Session, runs: Iterable[str]) -> dict[str, list[BatchSize]]:
    """Return the batch sizes of each run of this service; a fork's begin with those of its ancestors."""
    stretches = load_lineages(session, runs)
    involved = {stretch.run for parts in stretches.values() for stretch in parts}
    query = select(Run.id, Run.config["sampling"]).where(Run.id.in_(involved))
    completions = {run: _batch_completions(sampling) for run, sampling in session.execute(query)}
    return {
        run: [
            BatchSize(stretch.last_step, size) for stretch in parts if (size := completions.get(stretch.run))
        ]
        for run, parts in stretches.items()
        if all(completions.get(stretch.run) for stretch in parts)
    }


MAX_COMPLETIONS = 2**53
"""Maximum number of completions in a batch: the largest integer that an axis represents exactly."""


def _batch_completions(sampling: Any) -> int:
    """Return the completions of a generation batch; 0 if the config, perhaps another trainer's, omits it."""
    settings = sampling if isinstance(sampling, Mapping) else {}
    prompts, group = settings.get("prompts_per_step"), settings.get("group_size")
    size = prompts * group if isinstance(prompts, int) and isinstance(group, int) else 0
    return size if 0 <= size < MAX_COMPLETIONS else 0
