"""Detect changes of the policy in its first updates, for which there is no healthy window."""

from typing import NamedTuple

import numpy as np

from backend.analysis.diagnosis.log import Log
from backend.analysis.diagnosis.outcome import Interval

MIN_FACTOR_BY_METRIC = {"policy/entropy": 2.0, "length/mean": 1.4, "policy/token_prob_mean": 1.2}
"""Minimum factor of the change of each metric."""


class FirstChange(NamedTuple):
    """A large change of a metric by the first few updates."""

    metric: str
    first: float
    soon: float
    """Median of the three points after the first."""
    last: int
    """Step of the last of these three points."""
    onset: Interval


def changed_at_once(log: Log) -> FirstChange | None:
    """Return the first metric that its first updates changed, or None. The log must begin at step 0 or 1."""
    for metric, factor in MIN_FACTOR_BY_METRIC.items():
        series = log.series.get(metric)
        finite = series.finite() if series is not None else None
        if finite is None or len(finite) < 4 or finite.steps[0] > 1 or finite.values[0] <= 0:
            continue
        first_value, median_soon = float(finite.values[0]), float(np.median(finite.values[1:4]))
        if not 1 / factor < median_soon / first_value < factor:
            onset = Interval(int(finite.steps[0]), int(finite.steps[1]))
            return FirstChange(metric, first_value, median_soon, int(finite.steps[3]), onset)
    return None
