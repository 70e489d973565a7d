"""Synthetic logs of runs with noise of a known size."""

import numpy as np

from backend.analysis.diagnosis.log import Log, Series


def series(values, steps=None):
    values = np.asarray(values, float)
    return Series(np.arange(1, len(values) + 1) if steps is None else np.asarray(steps), values)


def learning(count, *, start=0.2, best=0.6, noise=0.05, seed=0):
    """Return an accuracy that rises within the first third and then stays level."""
    rise = np.minimum(1, np.arange(count) / max(1, count // 3))
    return start + (best - start) * rise + np.random.default_rng(seed).normal(0, noise, count)


def steady(count, value, *, noise=0.05, seed=1):
    """Return a metric that stays level, with `noise` as a fraction of its value."""
    return value * (1 + np.random.default_rng(seed).normal(0, noise, count))


def healthy(count=120, *, seed=0, **changes):
    """Return the log of a run that learns, with the metrics that every trainer logs."""
    values_by_name = {
        "reward/accuracy": learning(count, seed=seed),
        "policy/entropy": steady(count, 0.8, seed=seed + 1),
        "length/mean": steady(count, 30, seed=seed + 2),
        "kl/k3": steady(count, 0.01, noise=0.2, seed=seed + 3),
        "optim/grad_norm": steady(count, 0.5, noise=0.2, seed=seed + 4),
        "optim/lr": np.full(count, 3e-4),
        "groups/zero_variance_frac": steady(count, 0.3, noise=0.2, seed=seed + 5),
    } | changes
    return Log({name: series(values) for name, values in values_by_name.items()})


def change_series(log, from_step, **changes):
    """Return the log with `changes[metric]` applied to each metric's values from step `from_step` on."""
    broken_series = dict(log.series)
    for name, change in changes.items():
        metric = name.replace("__", "/")
        values = broken_series[metric].values.copy()
        values[from_step:] = change(values[from_step:])
        broken_series[metric] = Series(broken_series[metric].steps, values)
    return Log(broken_series, log.config, log.status, log.reason)
