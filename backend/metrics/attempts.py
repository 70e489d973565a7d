"""Valid rows of a run: an attempt's rows end at the step from which a later attempt continued.

This is the one place that says so: CSV, history and rollouts read with `valid_row_condition`, curves with
`valid_row_mask`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, and_, or_, select, true
from sqlalchemy.orm import Session

from backend.storage.models import NOT_BEGUN, Attempt


class Limit(NamedTuple):
    """Rows of this attempt, and of all before it, count up to a step."""

    attempt: int
    last_step: int


def load_limits(session: Session, runs: Iterable[str]) -> dict[str, list[Limit]]:
    """Return the limits of each run that was continued from a checkpoint."""
    return load_limits_and_sealed_steps(session, runs)[0]


def load_limits_and_sealed_steps(
    session: Session, runs: Iterable[str]
) -> tuple[dict[str, list[Limit]], dict[str, dict[int, int]]]:
    """Return the attempts and, for every run, the step up to which each attempt is sealed."""
    runs = list(runs)
    query = (
        select(Attempt.run_id, Attempt.number, Attempt.from_step, Attempt.packed_step)
        .where(Attempt.run_id.in_(runs))
        .order_by(Attempt.run_id, Attempt.number.desc())
    )
    limits_of_run: dict[str, list[Limit]] = {}
    reached: dict[str, dict[int, int]] = {run: {} for run in runs}
    for run_id, number, from_step, packed_step in session.execute(query):
        reached[run_id][number] = packed_step
        if from_step == NOT_BEGUN:
            continue
        limits = limits_of_run.setdefault(run_id, [])
        # An attempt that went back no further than a later one hides nothing more.
        if number > 1 and (not limits or from_step < limits[-1].last_step):
            limits.append(Limit(number - 1, from_step))
    return limits_of_run, reached


def valid_row_condition(table: Any, limits: Sequence[Limit]) -> ColumnElement[bool]:
    """Return the SQL condition that no later attempt hides a row; `table` has the columns `attempt` and
    `step`.
    """
    return and_(true(), *(or_(table.attempt > attempt, table.step <= last) for attempt, last in limits))


def valid_row_mask(
    attempts: NDArray[np.int64], steps: NDArray[np.int64], limits: Sequence[Limit]
) -> NDArray[np.bool_]:
    """Return a mask of the rows that no later attempt hides."""
    is_counted = np.ones(len(steps), dtype=bool)
    for attempt, last in limits:
        is_counted &= (attempts > attempt) | (steps <= last)
    return is_counted
