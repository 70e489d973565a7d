"""The data that a diagnosis uses: series of metrics by their catalog names, and the config."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

METRICS = (
    "reward/accuracy",
    "eval/accuracy",
    "reward/correctness/mean",
    "reward/mean",
    "reward/std",
    "policy/entropy",
    "policy/token_prob_mean",
    "policy/distinct_frac",
    "policy/lift_right",
    "text/repetition",
    "text/compression",
    "text/structure_ok",
    "text/structure_polluted",
    "text/structure_broken",
    "text/unusual_script_frac",
    "clip/frac",
    "kl/old",
    "length/mean",
    "length/truncated_frac",
    "groups/zero_variance_frac",
    "groups/all_wrong_frac",
    "reward/unearned_share",
    "kl/k1",
    "kl/k2",
    "kl/k3",
    "loss/total",
    "loss/policy",
    "loss/kl",
    "loss/entropy",
    "optim/grad_norm",
    "optim/lr",
    "optim/updates",
    "optim/update_norm",
    "optim/kl_share",
    "optim/skipped",
    "ratio/max",
    "clip/low_frac",
    "clip/high_frac",
    "sampling/staleness",
    "mismatch/k3",
    "mismatch/prob_diff_mean",
    "mismatch/ess",
    "router/expert_change_frac",
    "router/shift_mean",
    "critic/loss",
    "critic/explained_variance",
)
"""Metrics that detectors read, in addition to the patterns in is_read."""

HELD_OUT_SETS_PREFIX = "eval/accuracy/"
"""Prefix of the held-out accuracies of separate sets of problems."""

TERM_MEAN_PATTERN = re.compile(r"reward/[^/]+/mean")
"""Pattern of the metric for the mean of a reward term."""


def is_read(metric: str) -> bool:
    """Return whether any detector reads this metric."""
    return (
        metric in _METRICS
        or metric.startswith(HELD_OUT_SETS_PREFIX)
        or TERM_MEAN_PATTERN.fullmatch(metric) is not None
    )


_METRICS = frozenset(METRICS)

MAX_POINTS = 5_000
"""Maximum number of points of a series. A longer series is reduced to the medians of equal parts."""


MAX_FINITE = 1e100
"""Magnitude from which a value is treated as infinite, because sums of its square could overflow."""


@dataclass(frozen=True, slots=True)
class Series:
    """The values of a metric in the order of steps."""

    steps: Ints
    """Increasing steps, of shape (N,)."""
    values: Floats
    """Values, of shape (N,), which may be NaN or infinite."""

    def __len__(self) -> int:
        return len(self.steps)

    def finite(self) -> "Series":
        """Return the points that are finite and whose squares do not overflow."""
        is_finite = np.abs(self.values) < MAX_FINITE  # False for NaN
        return Series(self.steps[is_finite], self.values[is_finite])

    def between(self, first: float, last: float) -> "Series":
        """Return the points with first <= step <= last."""
        is_inside = (self.steps >= first) & (self.steps <= last)
        return Series(self.steps[is_inside], self.values[is_inside])

    def thinned(self) -> "Series":
        """Reduce the series to at most MAX_POINTS points, each the median of a
        part, or NaN if a value is not finite.
        """
        if len(self) <= MAX_POINTS:
            return self
        size, longer_count = divmod(len(self), MAX_POINTS)
        split_at = longer_count * (size + 1)
        matrices = (
            self.values[:split_at].reshape(longer_count, size + 1),
            self.values[split_at:].reshape(-1, size),
        )
        lengths = np.repeat([size + 1, size], [longer_count, MAX_POINTS - longer_count])
        return Series(
            self.steps[np.cumsum(lengths) - 1], np.concatenate([_middles(matrix) for matrix in matrices])
        )


def _middles(rows: Floats) -> Floats:
    """Return the medians of the rows, of shape (N,), or NaN for rows with a non-finite value."""
    is_finite = np.asarray(np.isfinite(rows).all(axis=1))
    middles: Floats = np.median(np.where(is_finite[:, None], rows, 0.0), axis=1)
    return np.where(is_finite, middles, math.nan)


@dataclass(frozen=True)
class Log:
    """The data of a run. Only series are required. Causes whose series are missing are not judged."""

    series: Mapping[str, Series]
    config: Mapping[str, Any] = field(default_factory=dict)
    """Config of a run of this service as JSON, or empty for a log of another trainer."""
    status: str = ""
    reason: str = ""
    """Reason why the run ended, as in the list of runs."""
    trainer: str = ""
    """Name of another trainer that made the log, as in `run.origin`, or ""."""
    parent_config: Mapping[str, Any] = field(default_factory=dict)
    """Config of the parent of a fork, or empty for other runs."""

    def find(self, *names: str, min_points: int = 3) -> tuple[str, Series] | None:
        """Return the name and the finite points of the first metric with
        at least `min_points` of them, or None.
        """
        for name in names:
            if (series := self.series.get(name)) is not None and len(finite := series.finite()) >= min_points:
                return name, finite
        return None

    def held_out(self, min_points: int = 3) -> dict[str, Series]:
        """Return the held-out accuracy, or else that of each set of
        problems, with at least `min_points` points.
        """
        if (total := self.find("eval/accuracy", min_points=min_points)) is not None:
            return dict([total])
        sets = (
            self.find(name, min_points=min_points)
            for name in self.series
            if name.startswith(HELD_OUT_SETS_PREFIX)
        )
        return dict(named_series for named_series in sets if named_series is not None)

    def setting(self, path: str) -> Any:
        """Return a config field by its dotted path, or None if it is unknown."""
        value: Any = self.config
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value
