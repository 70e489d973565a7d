"""Signal budgets of runs: parts of their completions, tokens and seconds, in all and over their steps."""

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
from backend.rollouts.marks import BIT
from backend.storage.models import GroupTally

MAX_BINS = 200

TALLIED = ("truncated", "equal_right", "equal_wrong", "left_out", "untold")
"""Parts that tallies tell of; `untold` trained, and was masked, clipped or useful."""

Steps = NDArray[np.int64]
Counts = dict[Unit, NDArray[np.float64]]
"""(steps, parts) of each unit."""


def load_signal_budgets(session: Session, runs: Sequence[str], bins: int) -> list[dict[str, Any]]:
    """Return the budget of each run, in at most `bins` parts of its steps: breakdown_schemas.SignalBudget."""
    names = [budget_metric(category, unit) for unit in UNITS for category in PARTS]
    points = read_points(session, runs, names)
    budgets = []
    parts: Sequence[str]
    for run in runs:
        of_run = {name: curve for (owner, name), curve in points.items() if owner == run}
        if of_run:
            source, parts, (steps, values) = "trainer", PARTS, _read_logged(of_run)
        else:
            source, parts, (steps, values) = "rollouts", TALLIED, _read_tallies(session, run)
        budgets.append(_budget_json(run, source if len(steps) else "", parts, steps, values, bins))
    return budgets


def _read_logged(points: Mapping[str, Any]) -> tuple[Steps, Counts]:
    """Return the steps that logged their budget; a part that is not there, or not finite, counts as 0."""
    steps = np.unique(np.concatenate([curve.steps for curve in points.values()]))
    values: Counts = {unit: np.zeros((len(steps), len(PARTS))) for unit in UNITS}
    for unit in UNITS:
        for column, category in enumerate(PARTS):
            if (curve := points.get(budget_metric(category, unit))) is not None:
                counts = np.nan_to_num(curve.values, nan=0.0, posinf=0.0, neginf=0.0)
                values[unit][np.searchsorted(steps, curve.steps), column] = counts
    return steps, values


def _read_tallies(session: Session, run: str) -> tuple[Steps, Counts]:
    """Completions and tokens by the marks of a run's tallies, which know of no update."""
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
        at = np.searchsorted(steps, step), TALLIED.index(_budget_part(marks, has_others=has_others))
        values["completions"][at] += int(completions)
        values["tokens"][at] += int(tokens)
    return steps, values


def _budget_part(marks: int, *, has_others: bool) -> str:
    """Return the part of completions with these marks: the first that fits, as in
    backend.config.signal_budget.

    `has_others`: their group has several completions, so that their rewards could be compared.
    """
    has = {name for name, bit in BIT.items() if marks & bit}
    if "truncated" in has:
        return "truncated"
    if has_others and "same_reward" in has and "unscored" not in has:
        is_graded = "right" in has or "wrong" in has
        return "equal_right" if ("right" if is_graded else "rewarded") in has else "equal_wrong"
    return "left_out" if "left_out" in has else "untold"


def _budget_json(
    run: str, source: str, parts: Sequence[str], steps: Steps, values: Counts, bins: int
) -> dict[str, Any]:
    """Sums over all steps, and over each of some stretches of as many steps."""
    count = min(bins, len(steps))
    edges = [len(steps) * at // count for at in range(count + 1)] if count else []
    units = [unit for unit in UNITS if unit in values and values[unit].any()]
    return {
        "run": run,
        "source": source,
        "parts": list(parts),
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
