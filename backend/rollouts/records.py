"""Completions in the form in which the trainer, a push or an import passes them to be stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class CompletionRecord:
    """A completion. The tokens of other trainers' completions are unknown, except possibly their number."""

    text: str
    token_strings: Sequence[str] = ()
    token_ids: Sequence[int] | NDArray[np.integer[Any]] = range(0)
    reward: float | None = None
    """Total reward; None if the completion could not be scored."""
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    """Reward terms, before weighting."""
    advantage: float | None = None
    finish_reason: str = ""
    """`stop` or `length`, or the term of another trainer."""
    correct: bool | None = None
    flags: Sequence[str] = ()
    """Flags of the completion: truncated, wrong, unparsed, no_think, repetitive, language."""
    arrays: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """Per-token values of equal length T, such as logprob, entropy and ratio."""
    turns: Sequence[Mapping[str, Any]] = ()
    """Tool calls and their answers, see `backend.rollouts.turns`."""

    @property
    def loss(self) -> float:
        """Sum of the tokens' contributions to the loss of the step; 0 if the completion did not train."""
        return float(self.arrays["loss"].sum(dtype=np.float64)) if "loss" in self.arrays else 0.0


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The G completions of a prompt at one step."""

    kind: str
    """`train`, `eval`, or `eval/<suite>`."""
    prompt_index: int
    """Position of the prompt within its step."""
    prompt_id: str
    problem: str
    domain: str
    prompt: str
    answer: str
    completions: Sequence[CompletionRecord]
    left_out: str = ""
    """Reason why the group does not train at this step, see `backend.rollouts.marks`; empty if it does."""

    @property
    def rewards(self) -> list[float]:
        """Rewards of the completions that could be scored."""
        return [completion.reward for completion in self.completions if completion.reward is not None]

    @property
    def reward_mean(self) -> float | None:
        """Mean reward; None if no completion could be scored."""
        rewards = self.rewards
        return sum(rewards) / len(rewards) if rewards else None

    @property
    def longest(self) -> int:
        """Number of tokens of the longest completion."""
        return max((len(completion.token_ids) for completion in self.completions), default=0)


def make_foreign_group(
    kind: str, prompt_index: int, prompt: str, answer: str, completions: Sequence[CompletionRecord]
) -> GroupRecord:
    """Return a group of another trainer, whose prompt id is derived from the text of the prompt."""
    prompt_id = sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return GroupRecord(kind, prompt_index, prompt_id, "", "", prompt, answer, completions)
