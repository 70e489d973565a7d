"""Rows of evaluations among those of the training, which a column such as `split` marks."""

import re
from array import array

import numpy as np

from backend.exchange.imports.guess import TIME_COLUMNS, is_step_name, step_candidates
from backend.exchange.imports.table import Table

SPLITS = ("split", "phase", "mode", "stage")
"""Columns that say whether a row is of the training or of an evaluation."""

_TRAINING = {"train", "training"}
_HELD_OUT = {
    *("val", "valid", "validation", "eval", "evaluation", "test", "dev", "heldout", "held_out", "holdout"),
}
_SHARED_NAMES = {*SPLITS, *TIME_COLUMNS, "epoch", "seed"}
"""Columns that mean the same in all rows."""
_HELD_OUT_NAME = re.compile(
    r"(?:e?val|valid|validation|evaluation|test|dev|held_?out)(?![a-z])", re.IGNORECASE
)
"""Pattern of names that say themselves that they are of an evaluation, and of W&B's own columns."""


def is_split_name(name: str) -> bool:
    """Return whether a column with this name may mark the rows of an evaluation."""
    return name.lower() in SPLITS


def mark_held_out_rows(table: Table) -> None:
    """Move the values of rows of an evaluation to columns with the prefix `eval/`.

    A table whose rows are all of an evaluation is left as it is.
    """
    labels = [texts for name, texts in table.labels.items() if name in SPLITS]
    is_held_out = np.array([_is_held_out(row) for row in zip(*labels, strict=True)], bool)
    if not is_held_out.any() or is_held_out.all():
        return
    steps = set(step_candidates(table)[:1])
    for name in [name for name in table.columns if name not in steps and not _is_shared(name)]:
        _move(table, name, is_held_out)


def _is_held_out(labels: tuple[str, ...]) -> bool:
    words = {label.strip().lower() for label in labels}
    return not words.isdisjoint(_HELD_OUT) and words.isdisjoint(_TRAINING)


def _is_shared(name: str) -> bool:
    is_common = name.lower() in _SHARED_NAMES or is_step_name(name) or name.startswith("_")  # W&B's own
    return is_common or not name.strip() or _HELD_OUT_NAME.match(name) is not None


def _move(table: Table, name: str, is_held_out: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    column = table.columns[name]
    rows, values = (np.array(numbers) for numbers in column.numbers())
    is_moved = is_held_out[rows]
    if not is_moved.any():
        return
    column.rows = array("q", rows[~is_moved].tobytes())
    column.values = array("d", values[~is_moved].tobytes())
    table.points -= int(is_moved.sum())
    table.extend(f"eval/{name}", rows[is_moved], values[is_moved])
    if not column.values:
        del table.columns[name]
