"""The last and best value of each metric of a run, stored as one document for the list of runs."""

import math
from collections.abc import Mapping
from typing import Any, Self

from backend.config.metrics import find_metric, is_interval_end
from backend.storage.numbers import spell


class Summary:
    """The last and best values of the metrics of a run, updated step by step."""

    def __init__(self) -> None:
        self.step = 0
        self._last: dict[str, float | str] = {}
        self._steps: dict[str, int] = {}
        self._best: dict[str, tuple[float, int]] = {}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Create a summary from the result of `document`."""
        summary = cls()
        summary.step = document["step"]
        summary._last = dict(document["last"])
        summary._steps = dict.fromkeys(summary._last, summary.step) | document.get("older", {})
        summary._best = {name: (best["value"], best["step"]) for name, best in document["best"].items()}
        return summary

    def add_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of the next step. A missing metric keeps its last value.

        Ends of intervals are left out, because they belong to another metric.
        """
        self.step = step
        for name, value in metrics.items():
            self._set_value(step, name, value, is_last=True)

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add metrics of a step, which may be before the last one."""
        self.step = max(self.step, step)
        for name, value in metrics.items():
            self._set_value(step, name, value, is_last=self._steps.get(name, -1) <= step)

    def _set_value(self, step: int, name: str, value: float, *, is_last: bool) -> None:
        if is_interval_end(name):
            return
        if is_last:
            self._last[name] = spell(value)
            self._steps[name] = step
        if math.isfinite(value) and self._is_better(name, value):
            self._best[name] = (value, step)

    def _is_better(self, name: str, value: float) -> bool:
        metric = find_metric(name)
        if metric is None or not metric.better:
            return False
        if name not in self._best:
            return True
        best, _ = self._best[name]
        return value > best if metric.better == "up" else value < best

    def document(self) -> dict[str, Any]:
        """Return {"step", "last": {metric: value}, "best": {metric: {"value", "step"}}, "older": {metric:
        step}}.

        `older` has the metrics whose last value was recorded before the last step. It is omitted if there are
        none.
        """
        best = {name: {"value": value, "step": step} for name, (value, step) in self._best.items()}
        older = {name: step for name, step in self._steps.items() if step < self.step}
        document = {"step": self.step, "last": dict(self._last), "best": best}
        return document | {"older": older} if older else document
