"""Logs that are changed to see whether the diagnosis holds: metrics withheld, steps shuffled or reversed."""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from backend.diagnosis.log import Log, Series
from backend.diagnosis.outcome import judge
from benchmarks.diagnosis.recipes import Planted

Change = Callable[[Log, Planted], Log]

GOAL = "reward/accuracy"


def as_it_is(log: Log, _key: Planted) -> Log:
    """The whole log of a run of this service."""
    return log


def metrics_alone(log: Log, _key: Planted) -> Log:
    """No config and no reason: the log of another trainer."""
    return Log(log.series)


def without_evaluations(log: Log, _key: Planted) -> Log:
    """No config, and no held-out accuracy."""
    return Log({name: series for name, series in log.series.items() if not name.startswith("eval/")})


def half_withheld(log: Log, key: Planted) -> Log:
    """No config, and of the metrics beside the training accuracy a half that is drawn for each run."""
    names = sorted(set(log.series) - {GOAL})
    kept = random.Random(str(key)).sample(names, len(names) // 2)
    return Log({name: log.series[name] for name in [GOAL, *kept]})


def shuffled(log: Log, key: Planted) -> Log:
    """All steps in an order that is drawn, the same for all metrics."""
    return _reordered(log, lambda steps: np.random.default_rng(_number(key)).permutation(len(steps)))


def reversed_plateau(log: Log, _key: Planted) -> Log:
    """The steps after the goal first came near its best, last step first."""
    healthy = judge(log).healthy
    first = healthy.sick if healthy else 0
    late = replace(log, series={name: series.between(first, np.inf) for name, series in log.series.items()})
    return _reordered(late, lambda steps: np.arange(len(steps))[::-1])


def _reordered(log: Log, order: Callable[[np.ndarray], np.ndarray]) -> Log:
    """Values in another order of the steps, moved together where metrics share their steps."""
    found = {}
    for name, series in log.series.items():
        found[name] = Series(series.steps, series.values[order(series.steps)]) if len(series) else series
    return replace(log, series=found)


def _number(key: Planted) -> int:
    return random.Random(str(key)).randrange(2**32)


VIEWS: dict[str, Change] = {
    "everything": as_it_is,
    "metrics alone, no config": metrics_alone,
    "metrics alone, no evaluation": without_evaluations,
    "half of the metrics, no config": half_withheld,
}
"""The same runs, with less and less known of them."""

CONTROLS: dict[str, Change] = {"steps shuffled": shuffled, "plateau reversed": reversed_plateau}
"""Healthy runs in which nothing happens at any step."""
