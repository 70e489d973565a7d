"""Change logs to test the robustness of the diagnosis: withhold metrics, or shuffle or reverse steps."""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from backend.analysis.diagnosis.judge import judge
from backend.analysis.diagnosis.log import Log, Series
from benchmarks.diagnosis.lead import surely_lower
from benchmarks.diagnosis.recipes import Planted

Change = Callable[[Log, Planted], Log]

GOAL_METRIC = "reward/accuracy"

MIN_EVALUATIONS = 3


def unchanged(log: Log, _key: Planted) -> Log:
    """Return the whole log of a run of this service."""
    return log


def metrics_alone(log: Log, _key: Planted) -> Log:
    """Return the log without config and reason, like that of another trainer."""
    return Log(log.series)


def without_evaluations(log: Log, _key: Planted) -> Log:
    """Return the log without config and held-out accuracy."""
    return Log({name: series for name, series in log.series.items() if not name.startswith("eval/")})


def half_withheld(log: Log, key: Planted) -> Log:
    """Return the log without config and with a random half of the metrics plus the training accuracy."""
    names = sorted(set(log.series) - {GOAL_METRIC})
    sampled_names = random.Random(str(key)).sample(names, len(names) // 2)
    return Log({name: log.series[name] for name in [GOAL_METRIC, *sampled_names]})


def shuffled(log: Log, key: Planted) -> Log:
    """Return the log with its steps in a random order, the same for all metrics."""
    return _reordered(log, lambda steps: np.random.default_rng(_number(key)).permutation(len(steps)))


def reversed_plateau(log: Log, _key: Planted) -> Log:
    """Return the steps after the goal first came close to its best, in reverse order."""
    healthy = judge(log).healthy
    first = healthy.sick if healthy else 0
    plateau_log = replace(
        log, series={name: series.between(first, np.inf) for name, series in log.series.items()}
    )
    return _reordered(plateau_log, lambda steps: np.arange(len(steps))[::-1])


def level_window(log: Log) -> Log | None:
    """Return the steps from the first evaluation not significantly below the best, or None if fewer than
    3.

    This definition was made after the unseen part had been examined.
    """
    accuracy = log.series["eval/accuracy"].finite()
    best = float(accuracy.values.max(initial=0.0))
    level_indices = np.flatnonzero(best - accuracy.values <= surely_lower(best))
    if not len(level_indices) or len(accuracy) - level_indices[0] < MIN_EVALUATIONS:
        return None
    first = accuracy.steps[level_indices[0]]
    return replace(log, series={name: series.between(first, np.inf) for name, series in log.series.items()})


def level_shuffled(log: Log, key: Planted) -> Log:
    """Return only the steps of the level window, in a random order."""
    return shuffled(level_window(log) or log, key)


def level_reversed(log: Log, _key: Planted) -> Log:
    """Return only the steps of the level window, in reverse order."""
    return _reordered(level_window(log) or log, lambda steps: np.arange(len(steps))[::-1])


def _reordered(log: Log, order: Callable[[np.ndarray], np.ndarray]) -> Log:
    """Return values in another order of the steps, moved together if metrics share their steps."""
    new_series = {}
    for name, series in log.series.items():
        new_series[name] = Series(series.steps, series.values[order(series.steps)]) if len(series) else series
    return replace(log, series=new_series)


def _number(key: Planted) -> int:
    return random.Random(str(key)).randrange(2**32)


CHANGE_BY_VIEW: dict[str, Change] = {
    "everything": unchanged,
    "metrics alone, no config": metrics_alone,
    "metrics alone, no evaluation": without_evaluations,
    "half of the metrics, no config": half_withheld,
}
"""The same runs, with less and less information about them."""

CONTROL_CHANGES: dict[str, Change] = {"steps shuffled": shuffled, "plateau reversed": reversed_plateau}
"""Changes of healthy runs after which nothing happens at any step."""

LEVEL_CONTROL_CHANGES: dict[str, Change] = {
    "level window shuffled": level_shuffled,
    "level window reversed": level_reversed,
}
"""Changes for runs with a window in which the held-out accuracy no longer rises."""

METRICS_BY_CAUSE: dict[str, tuple[str, ...]] = {
    "update_size": ("optim/lr", "optim/grad_norm", "optim/update_norm", "ratio/max"),
    "kl_pull": ("loss/kl", "optim/kl_share"),
    "entropy_explosion": ("policy/entropy",),
    "entropy_collapse": ("policy/entropy",),
    "length_blowup": ("length/mean", "length/truncated_frac"),
    "verifier": ("policy/entropy", "length/mean", "kl/k3", "policy/token_prob_mean", "eval/accuracy"),
    "reward_hacking": ("reward/mean",),
    "staleness": ("sampling/staleness", "optim/updates"),
    "dead_run": ("optim/lr", "optim/grad_norm", "optim/update_norm"),
    "mismatch": ("mismatch/k3", "mismatch/prob_diff_mean"),
    "overfitting": ("eval/accuracy",),
}
"""Metrics of which a planted cause's detector needs at least one, in addition to the training accuracy."""


def can_be_named(log: Log, cause: str) -> bool:
    """Return True if a log still has a metric that the cause requires."""
    return any(metric in log.series for metric in METRICS_BY_CAUSE[cause])
