"""Diagnosis of a run while it trains: its log grows by a step at a time and is judged every few steps.

Whether a step is judged depends on its number alone, so a run that was interrupted is judged like any
other.
"""

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from backend.analysis.diagnosis.diagnose import diagnose
from backend.analysis.diagnosis.findings import Diagnosis
from backend.analysis.diagnosis.log import Log, Series, is_read

EVERY = 10
"""Steps between two judgements of a short run."""

RARER = 400
"""After so many steps the distance grows by EVERY, and again after each as many."""


def is_due(step: int) -> bool:
    """Whether a run is judged after this step: every 10 steps, from step 800 on every 20, and so on."""
    return step > 0 and step % (EVERY * max(1, step // RARER)) == 0


def last_due(step: int) -> int:
    """Return the last step up to this one after which a run was judged; 0 if there is none."""
    return next((due_step for due_step in range(step - step % EVERY, 0, -EVERY) if is_due(due_step)), 0)


class GrowingLog:
    """The metrics of a training run that detectors read, in memory."""

    def __init__(
        self,
        config: Mapping[str, Any],
        series: Mapping[str, Series] | None = None,
        parent_config: Mapping[str, Any] | None = None,
    ) -> None:
        """`config` as RunConfig writes it; `series` holds what was recorded before."""
        self._config = config
        self._parent_config = parent_config or {}
        self._steps: dict[str, array[int]] = {}
        self._values: dict[str, array[float]] = {}
        for metric, points in (series or {}).items():
            self._steps[metric] = array("i", points.steps.tolist())
            self._values[metric] = array("d", points.values.tolist())

    def take(self, step: int, metrics: Mapping[str, float]) -> None:
        """Enter the metrics of the next step."""
        for metric, value in metrics.items():
            if is_read(metric):
                self._steps.setdefault(metric, array("i")).append(step)
                self._values.setdefault(metric, array("d")).append(value)

    def diagnosis(self, *, up_to: int) -> Diagnosis:
        """Return the diagnosis as it is, or was, after a step."""
        series = {}
        for metric, steps in self._steps.items():
            steps_of_metric = np.array(steps, np.int64)
            count = int(np.searchsorted(steps_of_metric, up_to, side="right"))
            if count:
                series[metric] = Series(
                    steps_of_metric[:count], np.array(self._values[metric])[:count]
                ).thinned()
        return diagnose(Log(series, self._config, parent_config=self._parent_config))
