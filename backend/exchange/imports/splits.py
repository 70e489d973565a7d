"""Rows of evaluations among those of the training, which a column such as `split` or a word marks."""

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from backend.exchange.imports.guess import TIME_COLUMNS, is_step_name, step_candidates
from backend.exchange.imports.table import Table

SPLITS = ("split", "phase", "mode", "stage", "set")
"""Columns that say whether a row is of the training or of an evaluation."""

_SHARED_NAMES = {*SPLITS, *TIME_COLUMNS, "epoch", "seed"}
"""Columns that mean the same in all rows."""
_HELD_OUT_NAME_PATTERN = re.compile(
    r"(?:evals?|evaluation|val|valid(?=[/.: ]|_(?:loss|acc|accuracy|reward|score))"
    r"|validation|test|dev|held_?out)(?![a-z])",
    re.IGNORECASE,
)
"""Pattern of the start of an evaluation's metric, such as `val/accuracy`, unlike `value_loss`."""


_PASS_RATE_PATTERN = re.compile(r"pass@\d{1,5}", re.IGNORECASE)


def is_split_name(name: str) -> bool:
    """Return whether a column with this name may mark the rows of an evaluation."""
    return name.lower() in SPLITS


def is_held_out_name(name: str) -> bool:
    """Return whether the name of a column itself says that it is of an evaluation."""
    return _HELD_OUT_NAME_PATTERN.match(name) is not None


def are_held_out_names(names: Iterable[str]) -> bool:
    """Return whether all names of a row say that they are of an evaluation."""
    return all(is_held_out_name(name) or name == "epoch" for name in names)


def are_pass_rates(names: Sequence[str]) -> bool:
    """Return whether the names of a row are pass@1, pass@2 and so on, which only evaluations measure."""
    return len(names) > 1 and all(_PASS_RATE_PATTERN.fullmatch(name) for name in names)


def is_of_training_or_evaluation(name: str) -> bool:
    """Return whether a column means different things in rows of the training and of an evaluation.

    Steps, times and labels mean the same, and the names of some columns say themselves what they are of.
    """
    is_common = name.lower() in _SHARED_NAMES or is_step_name(name) or name.startswith("_")  # W&B's own
    return not is_common and bool(name.strip()) and not is_held_out_name(name)


def move_held_out_rows(table: Table, is_held_out: NDArray[np.bool_], suite: str = "") -> None:
    """Move the values of an evaluation's rows to columns with the prefix `eval/`, or `eval/<suite>/`.

    A table whose rows are all of an evaluation is left as it is.
    """
    if not is_held_out.any() or is_held_out.all():
        return
    steps = set(step_candidates(table)[:1])
    for name in [name for name in table.columns if name not in steps and is_of_training_or_evaluation(name)]:
        _move(table, name, is_held_out, f"eval/{suite}/{name}" if suite else f"eval/{name}")


def _move(table: Table, name: str, is_held_out: NDArray[np.bool_], new_name: str) -> None:
    column = table.columns[name]
    rows, values = (np.array(numbers) for numbers in column.numbers())
    is_moved = is_held_out[rows]
    if not is_moved.any():
        return
    table.keep_values(name, ~is_moved)
    table.extend(new_name, rows[is_moved], values[is_moved])
    if not column.values:
        del table.columns[name]
