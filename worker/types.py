"""Types of the values of a step: completion, scored group, sampling records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from worker.prompt import Prompt


@dataclass(frozen=True, slots=True)
class SamplingMask:
    """Token ids that could be sampled at each token of one completion, if others were cut off."""

    counts: NDArray[np.int64]
    """Number of ids left at each token, [T]; 0: nothing was cut off."""
    ids: NDArray[np.int64]
    """Ids left at each token, concatenated, [sum of counts]."""


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Most likely tokens at each token of one completion, the most likely first."""

    ids: NDArray[np.int32]
    """[T, k]"""
    logprobs: Float[NDArray[np.float32], "T k"]
    """Log-probabilities of the sampling distribution, [T, k]; minus infinity if top-p or top-k cut a token
    off."""


class Turn(NamedTuple):
    """Tool call within a completion, and its answer."""

    tool: str
    """Name of the tool, as the policy wrote it."""
    outcome: str
    """Outcome of the call. ok, failed, timeout or killed; unanswered: the budget of turns or tokens was used
    up; done: the call ended the episode; lost: the environment failed."""
    seconds: float
    call: tuple[int, int]
    """Indices of the call's first token and of the token after the call."""
    observation: tuple[int, int]
    """Indices of the first token and the end of the answer with its frame; empty if it is unanswered."""
    is_cut: bool = False
    """Whether the answer was longer than an observation may be."""


class EpisodeResult(NamedTuple):
    """Result of an environment for a whole episode."""

    reward: float | None
    """Reward of the episode; None if the environment failed."""
    is_done: bool
    """Whether the environment ended the episode."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion as the sampler generated it for a prompt.

    All per-token values have one entry per generated token; an end-of-sequence token that the policy emitted
    is one of them.
    """

    ids: NDArray[np.int64]
    """Token ids, [T]."""
    text: str
    """Decoded completion, without end-of-sequence token."""
    token_strings: tuple[str, ...]
    """Text of each token, [T]."""
    finish_reason: Literal["stop", "length"]
    """Reason of the end. stop: the policy ended the completion; length: it was cut at the length limit."""
    sampler_logprobs: Float[NDArray[np.float32], "T"]
    """Log-probability of each token as the sampler computed it, [T]."""
    entropies: Float[NDArray[np.float32], "T"] | None = None
    """Entropy in nats of each token's sampling distribution, [T]; None if the engine reports none."""
    sampling_mask: SamplingMask | None = None
    """Ids that top-p or top-k left at each token; None if they were not recorded."""
    routes: NDArray[np.integer] | None = None
    """Experts that processed each token of prompt and completion except the last, [prompt + T - 1, L, K]."""
    prompt_tokens: int = 0
    """Number of tokens of the prompt."""
    alternatives: Alternatives | None = None
    """Most likely tokens at each token; None if they were not recorded."""
    version: int = 0
    """Version of the weights that wrote the completion: the number of steps learned before."""
    generated: Bool[NDArray[np.bool_], "T"] | None = None
    """False on observations, the tokens of tool answers, [T]; None: the policy wrote all tokens."""
    turns: tuple[Turn, ...] = ()
    """Tool calls, or actions in an environment, in order."""
    episode: EpisodeResult | None = None
    """Result of the environment; None if no environment gives rewards."""

    @property
    def is_truncated(self) -> bool:
        """Whether the completion was cut at the length cap."""
        return self.finish_reason == "length"

    @property
    def written(self) -> int:
        """Number of tokens that the policy wrote, which excludes observations."""
        return len(self.ids) if self.generated is None else int(self.generated.sum())

    @property
    def own_text(self) -> str:
        """Text without observations."""
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

    `correctness` decides filtering and accuracy. `rewards` (weighted terms plus length shaping) are turned
    into advantages. None marks a completion that could not be scored: it gets advantage 0 and is left out of
    the group's mean.
    """

    prompt: Prompt
    completions: tuple[Completion, ...]
    rewards: tuple[float | None, ...]
    """Shaped rewards from which advantages are computed, [G]."""
    terms: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Unweighted values of each reward term by name, [G] each."""
    correctness: tuple[float | None, ...] = ()
    """Correctness of each answer, [G]: 1 if correct, else 0; known also if no term rewards it."""
    counted: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Values of each term that enter the reward before its weight, [G] each: `terms` after all shaping."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Factor of each counted term."""
    missed: tuple[bool, ...] = ()
    """Whether each completion missed a required term, so that its reward is 0, [G]; empty: none did."""
    greedy_reward: float | None = None
    """Reward of the prompt's greedy baseline completion; None if there is none."""
