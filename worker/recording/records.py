"""Records that the trainer hands to the recorder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from backend.analysis.diagnosis.outcome import Interval
from backend.runs.checkpoints import KeptFor


@dataclass(frozen=True, slots=True)
class CompletionRecord:
    """One completion as it is stored."""

    text: str
    token_strings: Sequence[str]
    token_ids: Sequence[int] | NDArray[np.int64]
    reward: float | None
    """Total reward; None when it could not be scored."""
    rewards: Mapping[str, float | None]
    """Each reward term, before its weight."""
    advantage: float | None
    finish_reason: Literal["stop", "length"]
    correct: bool | None
    flags: tuple[str, ...] = ()
    """What is conspicuous about it: truncated, wrong, unparsed, no_think, repetitive, language."""
    arrays: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """Per-token values of equal length T, e.g. logprob, entropy, ratio."""
    turns: Sequence[Mapping[str, Any]] = ()
    """Calls of tools and their answers: see backend.rollouts.turns."""

    @property
    def loss(self) -> float:
        """Sum of its tokens' contributions to the step's loss; 0 where it did not train."""
        return float(self.arrays["loss"].sum(dtype=np.float64)) if "loss" in self.arrays else 0.0


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The G completions of one prompt at one step."""

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
    """Why it does not train at this step: see backend.rollouts.marks; "" where it does."""

    @property
    def rewards(self) -> list[float]:
        """Rewards of the completions that could be scored."""
        return [completion.reward for completion in self.completions if completion.reward is not None]

    @property
    def reward_mean(self) -> float | None:
        """Mean reward; None when nothing could be scored."""
        rewards = self.rewards
        return sum(rewards) / len(rewards) if rewards else None

    @property
    def longest(self) -> int:
        """Tokens of the longest completion."""
        return max((len(completion.token_ids) for completion in self.completions), default=0)


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Something worth a line in the run's history."""

    kind: str
    level: str
    message: str
    step: int | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """A diagnosis of the run as it is stored, with what it keeps."""

    columns: Mapping[str, Any]
    """Of the run's row."""
    onsets: Mapping[KeptFor, Interval] = field(default_factory=dict)
    """Onsets from before which a checkpoint is to be kept."""


@dataclass(frozen=True, slots=True)
class LifeRecord:
    """Word that the trainer works on something that takes longer than a step."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Everything one step leaves behind."""

    step: int
    """1..N; 0 is the evaluation before training."""
    metrics: Mapping[str, float]
    groups: Sequence[GroupRecord] = ()
    is_alarmed: bool = False
    """Whether something looked wrong: then every group is kept."""
