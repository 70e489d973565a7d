"""Signal budgets of runs: their completions, tokens and seconds, by part and over their steps."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backend.config.signal_budget import PARTS, UNITS, Unit, budget_metric
from backend.metrics.reading import read_points
from backend.rollouts.counting import valid_tally_conditions
from backend.rollouts.marks import BIT_BY_MARK
from backend.storage.models import GroupTally

MAX_BINS = 200

TALLIED = ("truncated", "equal_right", "equal_wrong", "left_out", "untold")
"""Parts that can be derived from tallies; `untold` completions trained, and were masked, clipped or useful.
"""

Steps = NDArray[np.int64]
Counts = dict[Unit, NDArray[np.float64]]
"""Counts by unit, as arrays of shape (steps, parts)."""


def load_signal_budgets(session: Session, runs: Sequence[str], bins: int) -> list[dict[str, Any]]:
    """Return the budget of each run in at most `bins` ranges, as `breakdown.schemas.SignalBudget`."""
    names = [budget_metric(category, unit) for unit in UNITS for category in PARTS]
    points = read_points(session, runs, names)
    budgets = []
    part_names: Sequence[str]
    for run in runs:
        logged_curves = {name: curve for (owner, name), curve in points.items() if owner == run}
        if logged_curves:
            source, part_names, (steps, values) = "trainer", PARTS, _read_logged(logged_curves)
        else:
            source, part_names, (steps, values) = "rollouts", TALLIED, _read_tallies(session, run)
        budgets.append(_budget_json(run, source if len(steps) else "", part_names, steps, values, bins))
    return budgets


def _read_logged(points: Mapping[str, Any]) -> tuple[Steps, Counts]:
    """Return the steps with a logged budget and their values; missing and non-finite values count as 0."""
    steps = np.unique(np.concatenate([curve.steps for curve in points.values()]))
    values: Counts = {unit: np.zeros((len(steps), len(PARTS))) for unit in UNITS}
    for unit in UNITS:
        for column, category in enumerate(PARTS):
            if (curve := points.get(budget_metric(category, unit))) is not None:
                counts = np.nan_to_num(curve.values, nan=0.0, posinf=0.0, neginf=0.0)
                values[unit][np.searchsorted(steps, curve.steps), column] = counts
    return steps, values


def _read_tallies(session: Session, run: str) -> tuple[Steps, Counts]:
    """Return completions and tokens by the marks of a run's tallies, which do not know about updates."""
    group = (GroupTally.step, GroupTally.prompt_index, GroupTally.attempt)
    size = func.sum(GroupTally.completions).over(partition_by=group)
    columns = (GroupTally.step, GroupTally.marks, GroupTally.completions, GroupTally.tokens)
    tallies = (
        select(*columns, size.label("size")).where(*valid_tally_conditions(session, run, "train")).subquery()
    )
    is_compared = tallies.c.size > 1
    query = select(
        tallies.c.step,
        tallies.c.marks,
        is_compared,
        func.sum(tallies.c.completions),
        func.sum(tallies.c.tokens),
    ).group_by(tallies.c.step, tallies.c.marks, is_compared)
    rows = session.execute(query).all()
    steps = np.unique(np.array([row[0] for row in rows], np.int64))
    values: Counts = {unit: np.zeros((len(steps), len(TALLIED))) for unit in ("completions", "tokens")}
    for step, marks, has_others, completions, tokens in rows:
        index = np.searchsorted(steps, step), TALLIED.index(_budget_part(marks, has_others=has_others))
        values["completions"][index] += int(completions)
        values["tokens"][index] += int(tokens)
    return steps, values


def _budget_part(marks: int, *, has_others: bool) -> str:
    """Return the first part that fits completions with these marks, like `backend.config.signal_budget`.

    `has_others` is true if the group has several completions, so that their rewards could be compared.
    """
    held_marks = {name for name, bit in BIT_BY_MARK.items() if marks & bit}
    if "truncated" in held_marks:
        return "truncated"
    if has_others and "same_reward" in held_marks and "unscored" not in held_marks:
        is_graded = "right" in held_marks or "wrong" in held_marks
        return "equal_right" if ("right" if is_graded else "rewarded") in held_marks else "equal_wrong"
    return "left_out" if "left_out" in held_marks else "untold"


def _budget_json(
    run: str, source: str, part_names: Sequence[str], steps: Steps, values: Counts, bins: int
) -> dict[str, Any]:
    """Return the sums over all steps, and over each of several ranges with about equal numbers of steps."""
    count = min(bins, len(steps))
    edges = [len(steps) * index // count for index in range(count + 1)] if count else []
    units = [unit for unit in UNITS if unit in values and values[unit].any()]
    return {
        "run": run,
        "source": source,
        "parts": list(part_names),
        "steps": len(steps),
        "totals": {unit: values[unit].sum(axis=0).tolist() for unit in units},
        "bins": [
            {
                "first": int(steps[first]),
                "last": int(steps[end - 1]),
                **{unit: values[unit][first:end].sum(axis=0).tolist() for unit in units},
            }
            for first, end in pairwise(edges)
        ],
    }
