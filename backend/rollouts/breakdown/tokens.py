"""Compute the value of a metric in each stored completion from the recorded values of its tokens."""

from collections.abc import Sequence

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backend.base.errors import Conflict
from backend.rollouts.counting import mark_condition, valid_tally_conditions
from backend.rollouts.marks import BIT_BY_MARK
from backend.rollouts.packing import try_unpack_arrays
from backend.rollouts.reading import valid_group_conditions
from backend.storage.models import GroupTally, RolloutGroup, RolloutTokens

MAX_TOKENS = 4_000_000
"""Maximum number of tokens that are read for both windows together."""


def load_token_values(
    session: Session, run_id: str, name: str, steps: Sequence[int]
) -> dict[tuple[int, int, int], float]:
    """Return the sum of `loss`, or the mean of another value, by step, prompt_index and position.

    Raise Conflict if there are too many tokens.
    """
    if not steps:
        return {}
    conditions = [
        *valid_group_conditions(session, run_id),
        RolloutGroup.kind == "train",
        RolloutGroup.step.between(min(steps), max(steps)),
        RolloutGroup.left_out == "",
    ]
    wanted_steps = set(steps)
    count_query = select(GroupTally.step, func.sum(GroupTally.tokens)).where(
        *valid_tally_conditions(session, run_id, "train"),
        GroupTally.step.between(min(steps), max(steps)),
        GroupTally.marks.bitwise_and(BIT_BY_MARK["left_out"]) == 0,
        mark_condition(BIT_BY_MARK["stored"]),
    )
    totals = session.execute(count_query.group_by(GroupTally.step))
    if sum(row[1] for row in totals if row[0] in wanted_steps) > MAX_TOKENS:
        raise Conflict(f"the two windows hold more than {MAX_TOKENS:,} tokens: choose shorter ones")
    query = select(RolloutGroup.step, RolloutGroup.prompt_index, RolloutTokens.data).join(
        RolloutTokens, RolloutTokens.group_id == RolloutGroup.id
    )
    token_values = {}
    for step, index, data in session.execute(query.where(*conditions)):
        if step in wanted_steps:
            for position, arrays in enumerate(try_unpack_arrays(data)[0]):
                value = _value(arrays, name)
                if value is not None:
                    token_values[step, index, position] = value
    return token_values


def _value(arrays: dict[str, np.ndarray], name: str) -> float | None:
    values = arrays.get("policy_entropy", arrays.get(name)) if name == "entropy" else arrays.get(name)
    if values is None or not len(values):
        return None
    if name == "loss":
        value = float(values.sum(dtype=np.float64))
    else:
        mask = arrays.get("mask", np.ones(len(values))) > 0
        value = float(values[mask].mean(dtype=np.float64)) if mask.any() else 0.0
    return value if np.isfinite(value) else None
