"""Reward for completions that are shorter than the others of their group."""

from collections.abc import Sequence


def group_length_rewards(lengths: Sequence[int], correct: Sequence[bool | None]) -> list[float | None]:
    """Return the relative brevity of the G completions of a group. Lengths are in tokens.

        lambda = 0.5 - (L - min L) / (max L - min L);  lambda where correct, min(0, lambda) where not

    The reward is 0 if all are equally long, and None if correctness is unknown.
    Source: Kimi k1.5, arXiv:2501.12599, section 2.3.3.
    """
    shortest, span = min(lengths), max(lengths) - min(lengths)
    rewards: list[float | None] = []
    for length, is_correct in zip(lengths, correct, strict=True):
        brevity = 0.5 - (length - shortest) / span if span else 0.0
        rewards.append(None if is_correct is None else brevity if is_correct else min(0.0, brevity))
    return rewards
