"""The axis, window and smoothing of a request for curves, and the points that it needs."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.metrics.blocks import Outlined
from backend.metrics.lineage import ALL_STEPS
from backend.metrics.series import Curve, exponential_mean, window_mask
from backend.metrics.thinning import OUTLINE_SHIFT, coarseness


@dataclass(frozen=True, slots=True)
class View:
    """The axis, window, number of points and smoothing of a request for curves."""

    x: str
    x_min: float | None
    x_max: float | None
    max_points: int
    smoothing: float
    after: int | None

    def smooth(self, curve: Curve) -> Curve:
        """Return the curve, smoothed over all of its points if smoothing is on."""
        return (
            replace(curve, values=exponential_mean(curve.values, self.smoothing)) if self.smoothing else curve
        )

    def visible(self, curve: Curve) -> NDArray[np.bool_] | slice:
        """Return a mask of the points that are in the window and after the step `after`."""
        if self.x_min is None and self.x_max is None and self.after is None:
            return slice(None)
        inside = window_mask(curve, self.x_min, self.x_max)
        if self.after is not None:
            inside &= curve.steps > self.after
        return slice(None) if inside.all() else inside

    def outlined_blocks(self, runs: Iterable[Any]) -> Outlined | None:
        """Return the blocks of which outlines are sufficient, because the runs are so long that only peaks
        are shown, or None if all points are needed.
        """
        if self.x != "step" or self.smoothing:
            return None
        first = 0 if self.x_min is None else math.ceil(_step(self.x_min))
        last = ALL_STEPS if self.x_max is None else math.floor(_step(self.x_max))
        if self.after is not None:
            first = max(first, self.after + 1)
        spans = {run.id: min(last, run.last_step) for run in runs}
        long_runs = {
            run for run, end in spans.items() if coarseness(first, end, self.max_points) >= OUTLINE_SHIFT
        }
        return Outlined(long_runs, first, last)


def _step(x: float) -> float:
    return min(max(x, 0.0), ALL_STEPS)
