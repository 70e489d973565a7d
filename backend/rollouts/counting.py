"""Count the completions of a run by step, marks and reward, from the tallies of groups."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from backend.metrics.attempts import load_limits, valid_row_condition
from backend.rollouts.marks import BIT_BY_MARK, parse_marks
from backend.storage.models import GroupTally


def valid_tally_conditions(session: Session, run_id: str, kind: str) -> list[ColumnElement[bool]]:
    """Return SQL conditions for the tallies of this run and kind that no later attempt hides."""
    limits = load_limits(session, [run_id]).get(run_id, ())
    return [GroupTally.run_id == run_id, GroupTally.kind == kind, valid_row_condition(GroupTally, limits)]


def mark_condition(mask: int) -> ColumnElement[bool]:
    """Return the SQL condition that the completions have all marks of a mask."""
    return GroupTally.marks.bitwise_and(mask) == mask


def count_completions(*conditions: ColumnElement[bool]) -> ColumnElement[int]:
    """Return the SQL sum of the completions that meet all conditions."""
    matching_count = case(
        (conditions[0] if len(conditions) == 1 else conditions[0] & conditions[1], GroupTally.completions)
    )
    return func.coalesce(func.sum(matching_count), 0)


def counts_by_step(
    session: Session, run_id: str, kind: str, marks: Sequence[str], min_reward: float | None
) -> list[dict[str, Any]]:
    """Return the number of completions of each step, of those that match the marks and the reward, and of the
    matching ones that are stored.
    """
    matches = mark_condition(parse_marks(marks))
    if min_reward is not None:
        matches &= GroupTally.reward >= min_reward
    query = (
        select(
            GroupTally.step,
            func.sum(GroupTally.completions).label("completions"),
            count_completions(matches).label("matching"),
            count_completions(matches, mark_condition(BIT_BY_MARK["stored"])).label("stored"),
        )
        .where(*valid_tally_conditions(session, run_id, kind))
        .group_by(GroupTally.step)
        .order_by(GroupTally.step)
    )
    return [{name: int(value) for name, value in row._mapping.items()} for row in session.execute(query)]  # noqa: SLF001
