"""The values that travel through a step: prompt, completion, scored group, batch for the loss."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from worker.prompt import Prompt


@dataclass(frozen=True, slots=True)
class SamplingMask:
    """The token ids that could be drawn at each token of one completion, where others were cut off."""

    counts: NDArray[np.int64]
    """[T] how many ids were left; 0: nothing was cut off there."""
    ids: NDArray[np.int64]
    """[sum of counts] the ids, token after token."""


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The likeliest tokens at each token of one completion, the likeliest first."""

    ids: NDArray[np.int32]
    """[T, k]"""
    logprobs: Float[NDArray[np.float32], "T k"]
    """[T, k] of the distribution that was drawn from; minus infinity where top-p or top-k cut a token off."""


class Turn(NamedTuple):
    """A call of a tool within a completion, and its answer."""

    tool: str
    """Name of the tool, as the policy wrote it."""
    outcome: str
    """ok, failed, timeout or killed; unanswered: the budget of turns or tokens was used up; done: it ended
    the episode; lost: the environment failed."""
    seconds: float
    call: tuple[int, int]
    """First token of the call, and the one behind it."""
    observation: tuple[int, int]
    """The same of the answer with what stands around it; empty if it is unanswered."""
    is_cut: bool = False
    """Whether the answer was longer than an observation may be."""


class EpisodeResult(NamedTuple):
    """The verdict of an environment on a whole episode."""

    reward: float | None
    """Its reward; None if the environment failed."""
    is_done: bool
    """Whether the environment ended it."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion as the sampler generated it for a prompt.

    All per-token values have one entry per generated token; an end-of-sequence token that the policy emitted
    is one of them.
    """

    ids: NDArray[np.int64]
    """[T] token ids."""
    text: str
    """The decoded completion, end-of-sequence token left out."""
    token_strings: tuple[str, ...]
    """[T] each token as text."""
    finish_reason: Literal["stop", "length"]
    """stop: the policy ended it; length: it was cut at the cap."""
    sampler_logprobs: Float[NDArray[np.float32], "T"]
    """[T] log-probability of each token as the sampler computed it."""
    entropies: Float[NDArray[np.float32], "T"] | None = None
    """[T] entropy in nats of the distribution each token was drawn from; None if the engine tells none."""
    sampling_mask: SamplingMask | None = None
    """The ids that top-p or top-k left at each token; None when they were not recorded."""
    routes: NDArray[np.integer] | None = None
    """[prompt + T - 1, L, K] the experts that read each token of prompt and completion but the last one."""
    prompt_tokens: int = 0
    """Tokens of the prompt."""
    alternatives: Alternatives | None = None
    """The likeliest tokens at each token; None when they were not recorded."""
    version: int = 0
    """Weight version that wrote it: the steps that had been learned when those weights were current."""
    generated: Bool[NDArray[np.bool_], "T"] | None = None
    """[T] False on observations: tokens that a tool's answer put there; None: the policy wrote all."""
    turns: tuple[Turn, ...] = ()
    """The calls of tools, or the actions in an environment, in order."""
    episode: EpisodeResult | None = None
    """The environment's verdict on it; None if there is none that rewards."""

    @property
    def is_truncated(self) -> bool:
        """Whether the completion was cut at the length cap."""
        return self.finish_reason == "length"

    @property
    def written(self) -> int:
        """Tokens that the policy wrote itself; all but observations."""
        return len(self.ids) if self.generated is None else int(self.generated.sum())

    @property
    def own_text(self) -> str:
        """The text without observations."""
        if self.generated is None:
            return self.text
        cut = len(self.token_strings) - (self.finish_reason == "stop")
        pairs = zip(self.token_strings[:cut], self.generated[:cut].tolist(), strict=True)
        return "".join(piece for piece, is_own in pairs if is_own)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Group:
    """The G completions of one prompt with their scores.

    `correctness` decides about filtering and accuracy, `rewards` (weighted terms plus length shaping) becomes
    the advantage. None marks a completion that could not be scored: it gets advantage 0 and no part in the
    group's mean.
    """

    prompt: Prompt
    completions: tuple[Completion, ...]
    rewards: tuple[float | None, ...]
    """[G] the shaped reward that advantages are computed from."""
    terms: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """[G] for each reward term by name, unweighted."""
    correctness: tuple[float | None, ...] = ()
    """[G] 1 where the answer is right, else 0, known also when no term rewards it."""
    counted: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """[G] for each term what enters the reward, before its weight: `terms` after all that shapes them."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Factor of each counted term."""
    missed: tuple[bool, ...] = ()
    """[G] True where a required term was missed, so that the reward is 0; empty: nowhere."""
    greedy_reward: float | None = None
    """The reward of the prompt's greedy completion, where that is the baseline; None: it has none."""
