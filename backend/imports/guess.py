"""Guesses about a table: which column counts the steps, by name and by value, and what each other one is."""

import numpy as np

from backend.config.metrics import canonical_name, find_metric
from backend.imports.table import Ints, Table, is_whole

STEP_NAMES = (
    "train/global_step", "training/global_step", "trainer/global_step", "global_step", "global step", "step",
    "steps", "_step", "iteration", "iter", "update", "updates", "optimizer_step", "train/step",
)  # fmt: skip
"""Names of columns that count steps, the surest first: W&B's own `_step` counts calls of its log function."""

STEPS_AT_LEAST = 0.5
"""Share of a column's values that must be whole numbers for it to count steps."""


def step_candidates(table: Table) -> list[str]:
    """Columns that may count the steps, the surest first: by name, then those that only rise."""
    lower = {name.lower(): name for name in table.columns}
    named = [lower[name] for name in STEP_NAMES if name in lower]
    others = [name for name in table.columns if name.strip() and name not in named and not _is_metric(name)]
    rising = [name for name in others if _rises(table, name)]
    return [name for name in named if _counts(table, name)] + rising


def _is_metric(name: str) -> bool:
    return canonical_name(name) is not None or find_metric(name) is not None


def _counts(table: Table, name: str) -> bool:
    """Whether nearly all values are whole numbers, and most rows have one."""
    _, values = table.columns[name].numbers()
    return 2 * len(values) >= len(table) > 0 and bool(is_whole(values).mean() >= STEPS_AT_LEAST)


def _rises(table: Table, name: str) -> bool:
    """Whether every row has a whole number that is larger than the one before."""
    rows, values = table.columns[name].numbers()
    is_full = len(rows) == len(table) and len(rows) > 2
    return is_full and bool(is_whole(values).all() and (np.diff(values) > 0).all())


def steps_of(table: Table, name: str | None) -> Ints:
    """The step of each row: -1 where it has none. Without a column rows are counted from 1."""
    if name is None:
        return np.arange(1, len(table) + 1, dtype=np.int64)
    steps = np.full(len(table), -1, dtype=np.int64)
    rows, values = table.columns[name].numbers()
    valid = is_whole(values)
    steps[rows[valid]] = values[valid].astype(np.int64)
    return steps


def is_step_name(name: str) -> bool:
    """Whether a column of this name counts something that is no metric."""
    return name.lower() in STEP_NAMES
