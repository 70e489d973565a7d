"""Guesses about a table: which column counts the steps, and what another one may be, by its values."""

import re
from typing import NamedTuple

import numpy as np

from backend.exchange.imports.names import is_known
from backend.exchange.imports.table import Floats, Ints, Table, is_whole

STEP_NAMES = (
    "train/global_step", "training/global_step", "trainer/global_step", "global_step", "global step",
    "global_step/max_steps", "system/step",
    "rollout/step", "train/step", "trainer/step", "train_step", "training_step", "step", "steps",
    "global_steps", "_step", "iteration", "iter", "update", "updates", "optimizer_step", "rollout_id",
    "checkpoint",
)  # fmt: skip
"""Names of columns that count steps, the surest first: W&B's own `_step` counts calls of its log function."""

TOGETHER = ("rollout/step", "train/step", "eval/step")
"""Columns of one trainer that count the same steps, each in rows of its own."""

STEPS_AT_LEAST = 0.5
"""Share of a column's values that must be whole numbers for it to count steps."""


def step_candidates(table: Table) -> list[str]:
    """Columns that may count the steps, the surest first: by name, then those that only rise."""
    lower = {name.lower(): name for name in table.columns}
    named = [lower[name] for name in STEP_NAMES if name in lower]
    unnamed = [name for name in table.columns if name.strip() and name not in named and not is_known(name)]
    rising = [name for name in unnamed if _rises(table, name)]
    return [name for name in named if _counts(table, name)] + rising


def _counts(table: Table, name: str) -> bool:
    """Return whether nearly all values are whole numbers, and most rows have one."""
    _, values = table.columns[name].numbers()
    return 2 * len(values) >= len(table) > 0 and bool(is_whole(values).mean() >= STEPS_AT_LEAST)


def _rises(table: Table, name: str) -> bool:
    """Return whether every row has a whole number that is larger than the one before."""
    rows, values = table.columns[name].numbers()
    is_full = len(rows) == len(table) and len(rows) > 2
    return is_full and bool(is_whole(values).all() and (np.diff(values) > 0).all())


def steps_of(table: Table, name: str | None) -> Ints:
    """Return the step of each row, -1 if it has none. Without a step column, rows are counted from 1."""
    if name is None:
        return np.arange(1, len(table) + 1, dtype=np.int64)
    steps = np.full(len(table), -1, dtype=np.int64)
    names = [name, *(other for other in TOGETHER if other != name)] if name.lower() in TOGETHER else [name]
    for column in reversed([table.columns[name] for name in names if name in table.columns]):
        rows, values = column.numbers()
        valid = is_whole(values)
        steps[rows[valid]] = values[valid].astype(np.int64)
    return steps


def is_step_name(name: str) -> bool:
    """Return whether a column of this name counts something that is no metric."""
    return name.lower() in STEP_NAMES


_NEVER_SUGGESTED = re.compile(
    r"epoch|progress|percent|time|elapsed|eta\b|runtime|remaining|memory|step|iter|format|length|tokens|seed"
    r"|version|util|ratio|clip|frac",
    re.IGNORECASE,
)
"""Words in the name of a column that is no accuracy, however its values rise."""


def may_be_suggested(column: str) -> bool:
    """Whether the name of a column leaves open what it is."""
    return _NEVER_SUGGESTED.search(column) is None


class Suggestion(NamedTuple):
    """A metric that a column's values resemble. It is shown but never applied."""

    metric: str
    reason: str


MIN_VALUES = 12
"""Smallest number of values from which a column's meaning can be guessed."""

MIN_RISE = 0.1
LARGEST_RATE = 0.01


def suggestion(values: Floats) -> Suggestion | None:
    """Return the metric that a column, in the order of its steps, resembles; None if it cannot be guessed."""
    if len(values) < MIN_VALUES or not np.isfinite(values).all():
        return None
    if values.min() < 0 or values.max() > 1:
        return None
    third = len(values) // 3
    first, last = values[:third], values[-third:]
    doubt = float(np.hypot(first.std(), last.std())) / third**0.5
    if float(last.mean() - first.mean()) > max(MIN_RISE, 3 * doubt):
        return Suggestion("reward/accuracy", "its values lie between 0 and 1 and rise")
    top = int(values.argmax())
    is_ramp = bool((np.diff(values[: top + 1]) >= 0).all() and (np.diff(values[top:]) <= 0).all())
    if 0 < values.max() <= LARGEST_RATE and is_ramp:
        words = f"its values are tiny (at most {values.max():.2g}) and constant, or fall without noise"
        return Suggestion("optim/lr", words)
    return None
