"""Guess which column of a table counts the steps, and what other columns may be, from their values."""

import re
from typing import NamedTuple

import numpy as np

from backend.exchange.imports.names import is_known
from backend.exchange.imports.table import Floats, Ints, Table, is_whole

STEP_NAMES = (
    "train/global_step", "training/global_step", "trainer/global_step", "global_step", "global step",
    "global_step/max_steps", "system/step",
    "rollout/step", "train/step", "trainer/step", "train_step", "training_step", "step", "steps",
    "global_steps", "grpo_step", "ppo_step", "rl_step", "_step", "iteration", "iter", "update", "updates",
    "optimizer_step", "rollout_id",
    "checkpoint",
)  # fmt: skip
"""Names of step columns, most reliable first; W&B's own `_step` counts calls of its log function."""

TIME_COLUMNS = ("_timestamp", "timestamp", "wall_time")
"""Columns with times in Unix time."""

COEXISTING_STEP_NAMES = ("rollout/step", "train/step", "eval/step")
"""Columns of one trainer that count the same steps, each in separate rows."""

MIN_STEP_SHARE = 0.5
"""Minimum share of whole numbers among the values of a step column."""


def step_candidates(table: Table) -> list[str]:
    """Return possible step columns, most reliable first: by name, then columns that only increase."""
    name_by_lower = {name.lower(): name for name in table.columns}
    known_columns = [name_by_lower[name] for name in STEP_NAMES if name in name_by_lower]
    other_columns = [
        name for name in table.columns if name.strip() and name not in known_columns and not is_known(name)
    ]
    rising_columns = [name for name in other_columns if _rises(table, name)]
    return [name for name in known_columns if _counts(table, name)] + rising_columns


def _counts(table: Table, name: str) -> bool:
    """Return whether at least half of the rows have a value, and half of the values are whole numbers."""
    _, values = table.columns[name].numbers()
    return 2 * len(values) >= len(table) > 0 and bool(is_whole(values).mean() >= MIN_STEP_SHARE)


def _rises(table: Table, name: str) -> bool:
    """Return whether every row has a whole number that is larger than the previous one."""
    rows, values = table.columns[name].numbers()
    is_full = len(rows) == len(table) and len(rows) > 2
    return is_full and bool(is_whole(values).all() and (np.diff(values) > 0).all())


def read_steps(table: Table, name: str | None) -> Ints:
    """Return the step of each row, or -1 if it has none; without a step column, rows are counted from 1."""
    if name is None:
        return np.arange(1, len(table) + 1, dtype=np.int64)
    steps = np.full(len(table), -1, dtype=np.int64)
    names = (
        [name, *(other_name for other_name in COEXISTING_STEP_NAMES if other_name != name)]
        if name.lower() in COEXISTING_STEP_NAMES
        else [name]
    )
    for column in reversed([table.columns[name] for name in names if name in table.columns]):
        rows, values = column.numbers()
        valid = is_whole(values)
        steps[rows[valid]] = values[valid].astype(np.int64)
    return steps


def is_step_name(name: str) -> bool:
    """Return whether a column with this name counts steps and is not a metric."""
    return name.lower() in STEP_NAMES


_NEVER_SUGGESTED = re.compile(
    r"epoch|progress|percent|time|elapsed|eta\b|runtime|remaining|memory|step|iter|format|length|tokens|seed"
    r"|version|util|ratio|clip|frac",
    re.IGNORECASE,
)
"""Pattern of words in the names of columns that are not accuracies, even if their values increase."""


def may_be_suggested(column: str) -> bool:
    """Return whether the name of a column does not determine its meaning."""
    return _NEVER_SUGGESTED.search(column) is None


class Suggestion(NamedTuple):
    """A metric that the values of a column resemble, which is shown but never applied."""

    metric: str
    reason: str


MIN_VALUES = 12
"""Minimum number of values from which the meaning of a column can be guessed."""

MIN_RISE = 0.1
MAX_LEARNING_RATE = 0.01


def suggestion(values: Floats) -> Suggestion | None:
    """Return the metric that the values of a column, ordered by step, resemble; None if there is none."""
    if len(values) < MIN_VALUES or not np.isfinite(values).all():
        return None
    if values.min() < 0 or values.max() > 1:
        return None
    third = len(values) // 3
    first, last = values[:third], values[-third:]
    standard_error = float(np.hypot(first.std(), last.std())) / third**0.5
    if float(last.mean() - first.mean()) > max(MIN_RISE, 3 * standard_error):
        return Suggestion("reward/accuracy", "its values lie between 0 and 1 and rise")
    peak = int(values.argmax())
    is_ramp = bool((np.diff(values[: peak + 1]) >= 0).all() and (np.diff(values[peak:]) <= 0).all())
    if 0 < values.max() <= MAX_LEARNING_RATE and is_ramp:
        reason = f"its values are tiny (at most {values.max():.2g}) and constant, or fall without noise"
        return Suggestion("optim/lr", reason)
    return None
