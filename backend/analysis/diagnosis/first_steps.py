"""Changes of the policy within its first updates, before which there is no healthy window to compare with."""

from typing import NamedTuple

import numpy as np

from backend.analysis.diagnosis.log import Log
from backend.analysis.diagnosis.outcome import Interval

FACTORS = {"policy/entropy": 2.0, "length/mean": 1.4, "policy/token_prob_mean": 1.2}
"""Factor by which a metric of the policy's behaviour has to change."""


class FirstChange(NamedTuple):
    """A metric that the first few updates took far from that of the policy as it came."""

    metric: str
    first: float
    soon: float
    """Median of the three points after the first."""
    last: int
    """Step of the last of them."""
    onset: Interval


def changed_at_once(log: Log) -> FirstChange | None:
    """Return the first such metric of a log that begins with step 0 or 1."""
    for metric, factor in FACTORS.items():
        series = log.series.get(metric)
        finite = series.finite() if series is not None else None
        if finite is None or len(finite) < 4 or finite.steps[0] > 1 or finite.values[0] <= 0:
            continue
        first, soon = float(finite.values[0]), float(np.median(finite.values[1:4]))
        if not 1 / factor < soon / first < factor:
            onset = Interval(int(finite.steps[0]), int(finite.steps[1]))
            return FirstChange(metric, first, soon, int(finite.steps[3]), onset)
    return None
