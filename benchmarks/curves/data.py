"""The curves of the benchmark: noise around a rise, with one spike and one NaN in each."""

import json
import math
from pathlib import Path

import numpy as np

SPIKE_VALUE = 1_000.0
METRIC_NAME = "reward/mean"


def make_names(runs: int) -> list[str]:
    """Return the names of runs with curves."""
    return [f"curve-{number:03}" for number in range(runs)]


def make_values(run: int, steps: int) -> list[float]:
    """Return the values of a run's curve at steps 1 to `steps`."""
    chance = np.random.default_rng([run, 0])
    values = 1 - np.exp(-3 * np.arange(steps) / steps) + 0.01 * run + chance.normal(0, 0.05, steps)
    values[steps // 2 + run] = SPIKE_VALUE
    values[steps // 3 + run] = math.nan
    curve: list[float] = values.tolist()
    return curve


def write_curves(directory: Path, runs: int, steps: int) -> None:
    """Write a file for each run, which all loaders read."""
    directory.mkdir()
    for run, name in enumerate(make_names(runs)):
        (directory / name).write_text(json.dumps(make_values(run, steps)))
