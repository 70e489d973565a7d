"""Logs of runs as diagnosis reads them: series of metrics by their names in the catalog, and the config."""

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
"""Metrics that a detector reads, beside those of is_read."""

SETS = "eval/accuracy/"
"""Prefix of the held-out accuracies of several sets of problems."""

TERM = re.compile(r"reward/[^/]+/mean")
"""Mean of one term of the reward."""


def is_read(metric: str) -> bool:
    """Return whether a detector reads this metric."""
    return metric in _METRICS or metric.startswith(SETS) or TERM.fullmatch(metric) is not None


_METRICS = frozenset(METRICS)

MAX_POINTS = 5_000
"""Maximum number of points of a series; a longer series is judged by the medians of equal parts."""


LARGEST = 1e100
"""Beyond it a value counts as not finite: sums of its square would overflow."""


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one metric in order of their steps."""

    steps: Ints
    """(N,) increasing."""
    values: Floats
    """(N,) may hold NaN and infinities."""

    def __len__(self) -> int:
        return len(self.steps)

    def finite(self) -> "Series":
        """Return the points that are numbers, and whose squares are."""
        is_finite = np.abs(self.values) < LARGEST  # not of NaN
        return Series(self.steps[is_finite], self.values[is_finite])

    def between(self, first: float, last: float) -> "Series":
        """Return the points of first <= step <= last."""
        is_inside = (self.steps >= first) & (self.steps <= last)
        return Series(self.steps[is_inside], self.values[is_inside])

    def thinned(self) -> "Series":
        """The same with at most MAX_POINTS points, each the median of a part; one not finite value shows."""
        if len(self) <= MAX_POINTS:
            return self
        size, longer = divmod(len(self), MAX_POINTS)
        cut = longer * (size + 1)
        parts = (self.values[:cut].reshape(longer, size + 1), self.values[cut:].reshape(-1, size))
        lengths = np.repeat([size + 1, size], [longer, MAX_POINTS - longer])
        return Series(
            self.steps[np.cumsum(lengths) - 1], np.concatenate([_middles(piece) for piece in parts])
        )


def _middles(parts: Floats) -> Floats:
    """(N,) medians of the rows; NaN if a value is not finite, so that it shows."""
    is_finite = np.asarray(np.isfinite(parts).all(axis=1))
    middles: Floats = np.median(np.where(is_finite[:, None], parts, 0.0), axis=1)
    return np.where(is_finite, middles, math.nan)


@dataclass(frozen=True)
class Log:
    """Everything known of a run. Only series are required; a missing one leaves a question open."""

    series: Mapping[str, Series]
    config: Mapping[str, Any] = field(default_factory=dict)
    """Config of a run of this service, as RunConfig writes it; empty for another trainer's log."""
    status: str = ""
    reason: str = ""
    """Why it ended, as the list of runs shows it."""
    trainer: str = ""
    """Origin of a run of another trainer, as in `run.origin`."""
    parent_config: Mapping[str, Any] = field(default_factory=dict)
    """Config of the run that a fork continued; empty for a run that is no fork."""

    def find(self, *names: str, least: int = 3) -> tuple[str, Series] | None:
        """Return the first of these metrics with at least `least` finite points, and those points."""
        for name in names:
            if (series := self.series.get(name)) is not None and len(finite := series.finite()) >= least:
                return name, finite
        return None

    def held_out(self, least: int = 3) -> dict[str, Series]:
        """Return the held-out accuracy with at least `least` points, or that of each set of problems."""
        if (total := self.find("eval/accuracy", least=least)) is not None:
            return dict([total])
        sets = (self.find(name, least=least) for name in self.series if name.startswith(SETS))
        return dict(named_series for named_series in sets if named_series is not None)

    def setting(self, path: str) -> Any:
        """A field of the config by its dotted path; None if it is not known."""
        value: Any = self.config
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value
