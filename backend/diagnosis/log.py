"""Logs of runs as diagnosis reads them: series of metrics by their names in the catalog, and the config."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
        """Only the points that are numbers."""
        is_finite = np.isfinite(self.values)
        return Series(self.steps[is_finite], self.values[is_finite])

    def between(self, first: float, last: float) -> "Series":
        """The points of first <= step <= last."""
        is_inside = (self.steps >= first) & (self.steps <= last)
        return Series(self.steps[is_inside], self.values[is_inside])


@dataclass(frozen=True)
class Log:
    """Everything known of a run. Only series are required; a missing one leaves a question open."""

    series: Mapping[str, Series]
    config: Mapping[str, Any] = field(default_factory=dict)
    """Of a run of this service, as RunConfig writes it; empty for a log of another trainer."""
    status: str = ""
    reason: str = ""
    """Why it ended, as the list of runs shows it."""

    def find(self, *names: str, least: int = 3) -> tuple[str, Series] | None:
        """The first of these metrics with at least `least` finite points, and those points."""
        for name in names:
            if (series := self.series.get(name)) is not None and len(finite := series.finite()) >= least:
                return name, finite
        return None

    def setting(self, path: str) -> Any:
        """A field of the config by its dotted path; None where it is not known."""
        value: Any = self.config
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value
