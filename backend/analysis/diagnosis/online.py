"""Diagnose a run every few steps while it trains.

Whether a step is due depends only on its number, so that interrupted runs are diagnosed at the same steps.
"""

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from backend.analysis.diagnosis.diagnose import diagnose
from backend.analysis.diagnosis.findings import Diagnosis
from backend.analysis.diagnosis.log import Log, Series, is_read

DIAGNOSIS_INTERVAL_STEPS = 10
"""Number of steps between diagnoses of a short run."""

INTERVAL_GROWTH_STEPS = 400
"""Number of steps after each of which the interval between diagnoses grows by DIAGNOSIS_INTERVAL_STEPS."""


def is_due(step: int) -> bool:
    """Return whether a run is diagnosed after a step: every 10 steps, from step 800 every 20, and so on."""
    return step > 0 and step % (DIAGNOSIS_INTERVAL_STEPS * max(1, step // INTERVAL_GROWTH_STEPS)) == 0


def last_due(step: int) -> int:
    """Return the last step up to `step` after which a run is diagnosed, or 0 if there is none."""
    return next(
        (
            due_step
            for due_step in range(step - step % DIAGNOSIS_INTERVAL_STEPS, 0, -DIAGNOSIS_INTERVAL_STEPS)
            if is_due(due_step)
        ),
        0,
    )


class GrowingLog:
    """The metrics of a running run that detectors read, in memory."""

    def __init__(
        self,
        config: Mapping[str, Any],
        series: Mapping[str, Series] | None = None,
        parent_config: Mapping[str, Any] | None = None,
    ) -> None:
        """Create a log from a config as JSON and the series that were recorded before."""
        self._config = config
        self._parent_config = parent_config or {}
        self._steps: dict[str, array[int]] = {}
        self._values: dict[str, array[float]] = {}
        for metric, points in (series or {}).items():
            self._steps[metric] = array("i", points.steps.tolist())
            self._values[metric] = array("d", points.values.tolist())

    def add_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of the next step."""
        for metric, value in metrics.items():
            if is_read(metric):
                self._steps.setdefault(metric, array("i")).append(step)
                self._values.setdefault(metric, array("d")).append(value)

    def diagnosis(self, *, up_to: int) -> Diagnosis:
        """Return the diagnosis after the step `up_to`, without later points."""
        series = {}
        for metric, steps in self._steps.items():
            metric_steps = np.array(steps, np.int64)
            count = int(np.searchsorted(metric_steps, up_to, side="right"))
            if count:
                series[metric] = Series(
                    metric_steps[:count], np.array(self._values[metric])[:count]
                ).thinned()
        return diagnose(Log(series, self._config, parent_config=self._parent_config))
