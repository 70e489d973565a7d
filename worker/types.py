"""Types for the values of a step: completion, scored group and sampling records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from worker.prompt import Prompt


@dataclass(frozen=True, slots=True)
class SamplingMask:
    """The token ids that could be sampled at each token of one completion, if top-p or top-k excluded
    others.
    """

    counts: NDArray[np.int64]
    """Number of ids left at each token, [T]. 0 means that none were excluded."""
    ids: NDArray[np.int64]
    """Ids left at each token, concatenated, [sum of counts]."""


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The most likely tokens at each token of one completion, sorted by probability."""

    ids: NDArray[np.int32]
    """Token ids, [T, k]."""
    logprobs: Float[NDArray[np.float32], "T k"]
    """Log-probabilities of the sampling distribution, [T, k]. They are -inf if top-p or top-k excluded a
    token.
    """


class Turn(NamedTuple):
    """The end of a turn: a tool call within a completion, and its answer."""

    tool: str
    """Name of the tool, as the policy wrote it."""
    outcome: str
    """Outcome of the call: ok, failed, timeout or killed. It is unanswered if the limit of turns or tokens
    was reached, done if the call ended the episode, and lost if the environment failed.
    """
    seconds: float
    call: tuple[int, int]
    """Indices of the call's first token and of the token after the call."""
    observation: tuple[int, int]
    """Indices of the first token and the end of the answer with its frame. They are equal if it is
    unanswered.
    """
    is_cut: bool = False
    """True if the answer was longer than an observation may be."""


class EpisodeResult(NamedTuple):
    """The result of an environment for a complete episode."""

    reward: float | None
    """Reward of the episode, or None if the environment failed."""
    is_done: bool
    """True if the environment ended the episode."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion that the sampler generated for a prompt.

    All per-token values have one entry per generated token, including an end-of-sequence token that the
    policy emitted.
    """

    ids: NDArray[np.int64]
    """Token ids, [T]."""
    text: str
    """Decoded completion, without end-of-sequence token."""
    token_strings: tuple[str, ...]
    """Text of each token, [T]."""
    finish_reason: Literal["stop", "length"]
    """Reason of the end: the policy ended the completion (stop), or it was cut at the length limit
    (length).
    """
    sampler_logprobs: Float[NDArray[np.float32], "T"]
    """Log-probability of each token, computed by the sampler, [T]."""
    entropies: Float[NDArray[np.float32], "T"] | None = None
    """Entropy in nats of each token's sampling distribution, [T]. None if the engine does not report it."""
    sampling_mask: SamplingMask | None = None
    """Ids that top-p or top-k left at each token. None if they were not recorded."""
    routes: NDArray[np.integer] | None = None
    """Experts that processed each token of prompt and completion except the last, [prompt + T - 1, L, K]."""
    prompt_tokens: int = 0
    """Number of tokens of the prompt."""
    alternatives: Alternatives | None = None
    """Most likely tokens at each token. None if they were not recorded."""
    version: int = 0
    """Version of the weights that wrote the completion: the number of steps learned before."""
    generated: Bool[NDArray[np.bool_], "T"] | None = None
    """False on observations, which are the tokens of tool answers, [T]. None if the policy wrote all
    tokens.
    """
    turns: tuple[Turn, ...] = ()
    """Tool calls, or actions in an environment, in order."""
    episode: EpisodeResult | None = None
    """Result of the environment. None if no environment computes rewards."""

    @property
    def is_truncated(self) -> bool:
        """True if the completion was cut at the length limit."""
        return self.finish_reason == "length"

    @property
    def written_tokens(self) -> int:
        """Number of tokens that the policy wrote, excluding observations."""
        return len(self.ids) if self.generated is None else int(self.generated.sum())

    @property
    def own_text(self) -> str:
        """The text without observations."""
        if self.generated is None:
            return self.text
        token_count = len(self.token_strings) - (self.finish_reason == "stop")
        pairs = zip(self.token_strings[:token_count], self.generated[:token_count].tolist(), strict=True)
        return "".join(token_string for token_string, is_own in pairs if is_own)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Group:
    """The G completions of one prompt with their scores.

    `correctness` is used for filtering and accuracy. Advantages are computed from `rewards` (weighted terms
    plus length shaping). None marks a completion that could not be scored. It gets advantage 0 and is left
    out of the group's mean.
    """

    prompt: Prompt
    completions: tuple[Completion, ...]
    rewards: tuple[float | None, ...]
    """Shaped rewards from which advantages are computed, [G]."""
    terms: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Unweighted values of each reward term by name, [G] each."""
    correctness: tuple[float | None, ...] = ()
    """Correctness of each answer, [G], 1 or 0. It is known even if no term rewards it."""
    counted: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Values of each term after all shaping, before its weight, [G] each."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of each counted term."""
    missed: tuple[bool, ...] = ()
    """True for completions that missed a required term, so that their reward is 0, [G]. Empty if none did."""
    greedy_reward: float | None = None
    """Reward of the prompt's greedy baseline completion, or None if there is none."""
