"""Select the valid rows of a run. An attempt's rows are valid up to the step from which a later attempt
resumed.

All readers use this module: CSV, history and rollouts `valid_row_condition`, and curves `valid_row_mask`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, and_, or_, select, true
from sqlalchemy.orm import Session

from backend.storage.models import NOT_BEGUN, Attempt


class Limit(NamedTuple):
    """The last valid step of an attempt and of all attempts before it."""

    attempt: int
    last_step: int


def load_limits(session: Session, runs: Iterable[str]) -> dict[str, list[Limit]]:
    """Return the limits of each run that was resumed from a checkpoint, newest attempt first."""
    return load_limits_and_sealed_steps(session, runs)[0]


def load_limits_and_sealed_steps(
    session: Session, runs: Iterable[str]
) -> tuple[dict[str, list[Limit]], dict[str, dict[int, int]]]:
    """Return the limits of runs, and the step up to which each attempt of each run is sealed."""
    runs = list(runs)
    query = (
        select(Attempt.run_id, Attempt.number, Attempt.from_step, Attempt.packed_step)
        .where(Attempt.run_id.in_(runs))
        .order_by(Attempt.run_id, Attempt.number.desc())
    )
    limits_of_run: dict[str, list[Limit]] = {}
    sealed_steps: dict[str, dict[int, int]] = {run: {} for run in runs}
    for run_id, number, from_step, packed_step in session.execute(query):
        sealed_steps[run_id][number] = packed_step
        if from_step == NOT_BEGUN:
            continue
        limits = limits_of_run.setdefault(run_id, [])
        # An attempt that resumed at or after the start of a later one hides no additional rows.
        if number > 1 and (not limits or from_step < limits[-1].last_step):
            limits.append(Limit(number - 1, from_step))
    return limits_of_run, sealed_steps


def valid_row_condition(table: Any, limits: Sequence[Limit]) -> ColumnElement[bool]:
    """Return the SQL condition for the rows that no later attempt hides.

    `table` has the columns `attempt` and `step`.
    """
    return and_(
        true(), *(or_(table.attempt > attempt, table.step <= last_step) for attempt, last_step in limits)
    )


def valid_row_mask(
    attempts: NDArray[np.int64], steps: NDArray[np.int64], limits: Sequence[Limit]
) -> NDArray[np.bool_]:
    """Return a mask of the rows that no later attempt hides."""
    is_counted = np.ones(len(steps), dtype=bool)
    for attempt, last_step in limits:
        is_counted &= (attempts > attempt) | (steps <= last_step)
    return is_counted
