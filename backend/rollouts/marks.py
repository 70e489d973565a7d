"""Marks of completions, one bit each, by which rollouts are filtered and counted."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from backend.base.errors import FieldError, InvalidRequest

FLAGS = ("truncated", "repetitive", "unparsed", "no_think", "language", "unscored")
"""Flags of the trainer that have their own mark."""

REASONS = ("equal", "accuracy", "surplus", "waiting")
"""Reasons to leave a group out of training: the zero-variance filter, the accuracy filter, or a full step
(`surplus` groups are dropped, and `waiting` groups are trained at the next step).
"""

MARKS = ("right", "wrong", "rewarded", *FLAGS, "flagged", "same_reward", *REASONS, "left_out", "stored")
"""Marks of completions in the order of their bits, which are stored in the database; append new marks.

`rewarded` means a reward above 0, and `flagged` any flag except truncated and wrong. All completions of a
`same_reward` group have the same reward. `left_out` is set with any of the reasons.
"""

BIT_BY_MARK = {name: 1 << bit for bit, name in enumerate(MARKS)}
_SEEN_OTHERWISE = {"truncated", "wrong"}


class MarkedCompletion(Protocol):
    """The properties of a completion from which its marks are derived."""

    @property
    def reward(self) -> float | None: ...
    @property
    def finish_reason(self) -> str: ...
    @property
    def correct(self) -> bool | None: ...
    @property
    def flags(self) -> Sequence[str]: ...


def completion_marks(completion: MarkedCompletion) -> int:
    """Return the marks of a completion, without the marks of its group."""
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
    return sum(BIT_BY_MARK[name] for name, is_raised in raised.items() if is_raised)


def group_marks(rewards: Sequence[float | None], left_out: str, *, is_stored: bool) -> int:
    """Return the marks that all completions of a group share."""
    graded_rewards = [reward for reward in rewards if reward is not None]
    marks = (
        BIT_BY_MARK["same_reward"]
        if graded_rewards and all(reward == graded_rewards[0] for reward in graded_rewards)
        else 0
    )
    if left_out in REASONS:
        marks |= BIT_BY_MARK[left_out] | BIT_BY_MARK["left_out"]
    return marks | (BIT_BY_MARK["stored"] if is_stored else 0)


def parse_marks(names: Sequence[str]) -> int:
    """Return the bits of several marks; raise InvalidRequest for an unknown mark."""
    if unknown_names := [name for name in names if name not in BIT_BY_MARK]:
        raise InvalidRequest(
            [FieldError("mark", f"is {unknown_names[0][:64]!r}; expected one of {', '.join(MARKS)}")]
        )
    return sum(BIT_BY_MARK[name] for name in set(names))
