"""Marks of completions: what rollouts are filtered and counted by, one bit each."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from backend.base.errors import FieldError, InvalidRequest

FLAGS = ("truncated", "repetitive", "unparsed", "no_think", "language", "unscored")
"""Flags of the trainer that have a separate mark."""

REASONS = ("equal", "accuracy", "surplus", "waiting")
"""Reasons to leave a group out of training: the zero-variance filter, the accuracy filter, or no more room in
the step, for ever or until the next one."""

MARKS = ("right", "wrong", "rewarded", *FLAGS, "flagged", "same_reward", *REASONS, "left_out", "stored")
"""Marks of completions, in the order of their bits, which the database holds; new marks go to the end.

`rewarded` has a reward above 0; `flagged` any flag but truncated and wrong;
the group of `same_reward` has one reward only; `left_out` has any reason.
"""

BIT = {name: 1 << bit for bit, name in enumerate(MARKS)}
_SEEN_OTHERWISE = {"truncated", "wrong"}


class MarkedCompletion(Protocol):
    """The properties of a completion that marks are made of."""

    @property
    def reward(self) -> float | None: ...
    @property
    def finish_reason(self) -> str: ...
    @property
    def correct(self) -> bool | None: ...
    @property
    def flags(self) -> Sequence[str]: ...


def completion_marks(completion: MarkedCompletion) -> int:
    """Return the marks of one completion; those of its group are `group_marks`."""
    flags = set(completion.flags)
    is_wrong = not completion.correct if completion.correct is not None else "wrong" in flags
    raised: Mapping[str, Any] = {
        "right": completion.correct,
        "wrong": is_wrong,
        "rewarded": completion.reward is not None and completion.reward > 0,
        **{name: name in flags for name in FLAGS},
        "truncated": "truncated" in flags or completion.finish_reason == "length",
        "unscored": completion.reward is None,
        "flagged": bool(flags - _SEEN_OTHERWISE),
    }
    return sum(BIT[name] for name, is_raised in raised.items() if is_raised)


def group_marks(rewards: Sequence[float | None], left_out: str, *, is_stored: bool) -> int:
    """Return the marks that all completions of a group share."""
    graded = [reward for reward in rewards if reward is not None]
    marks = BIT["same_reward"] if graded and all(reward == graded[0] for reward in graded) else 0
    if left_out in REASONS:
        marks |= BIT[left_out] | BIT["left_out"]
    return marks | (BIT["stored"] if is_stored else 0)


def parse_marks(names: Sequence[str]) -> int:
    """Return the bits of several marks; raises InvalidRequest for one that does not exist."""
    if unknown := [name for name in names if name not in BIT]:
        raise InvalidRequest(
            [FieldError("mark", f"is {unknown[0][:64]!r}; expected one of {', '.join(MARKS)}")]
        )
    return sum(BIT[name] for name in set(names))
