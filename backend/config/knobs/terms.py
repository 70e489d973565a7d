"""Knobs of the loss: aggregation of token losses, entropy and imitation terms."""

from typing import Annotated, Literal

from pydantic import Field

from backend.config.base import Frozen

__all__ = [
    "AdaptiveEntropy",
    "Aggregation",
    "Entropy",
    "EntropyBonus",
    "Nll",
    "NoEntropyBonus",
    "NoNll",
    "PositiveNll",
    "PromptMean",
    "SeqMeanTokenMean",
    "SeqMeanTokenSum",
    "SeqMeanTokenSumNorm",
    "TokenMean",
]


class SeqMeanTokenMean(Frozen):
    """Mean over completions of the mean over their tokens: long answers weigh less per token (GRPO)."""

    type: Literal["seq_mean_token_mean"] = "seq_mean_token_mean"


class TokenMean(Frozen):
    """Mean over all tokens of the optimizer batch (DAPO, arXiv:2503.14476)."""

    type: Literal["token_mean"] = "token_mean"
    over: Literal["trained", "sampled"] = "trained"
    """Tokens that the divisor counts where filters.groups leaves groups out that are not replaced: those of
    the groups that train, or those of all groups that were sampled."""


class PromptMean(Frozen):
    """Token mean inside each prompt's group, then the mean over prompts (DAPO's formula; Magistral)."""

    type: Literal["prompt_mean"] = "prompt_mean"


class SeqMeanTokenSum(Frozen):
    """Mean over completions of the sum over their tokens (REINFORCE, RLOO)."""

    type: Literal["seq_mean_token_sum"] = "seq_mean_token_sum"


class SeqMeanTokenSumNorm(Frozen):
    """Mean over completions of the token sum over a constant: no length bias (Dr. GRPO, arXiv:2503.20783)."""

    type: Literal["seq_mean_token_sum_norm"] = "seq_mean_token_sum_norm"
    l_max: Annotated[int, Field(ge=1, le=10_000_000)] | Literal["max_new_tokens"] = "max_new_tokens"
    """The constant, in tokens; max_new_tokens takes the run's length cap. Paper 3000."""


Aggregation = Annotated[
    SeqMeanTokenMean | TokenMean | PromptMean | SeqMeanTokenSum | SeqMeanTokenSumNorm,
    Field(discriminator="type"),
]


class NoEntropyBonus(Frozen):
    """No entropy term; entropy is measured all the same."""

    type: Literal["none"] = "none"


class EntropyBonus(Frozen):
    """Subtract coef times the entropy of the full next-token distribution, reduced as the policy loss."""

    type: Literal["bonus"] = "bonus"
    coef: float = Field(default=0.001, ge=-1e3, le=1e3)
    """Weight of the bonus; loss per nat. Reinforce-Rej 0.001. Negative values punish entropy."""


class AdaptiveEntropy(Frozen):
    """A bonus whose weight rises after each step of training below the target and falls after each above it,
    and which is given only at or below the target (Skywork-OR1, arXiv:2505.22312).
    """

    type: Literal["adaptive"] = "adaptive"
    target: float = Field(default=0.2, ge=0, le=20)
    """Wanted mean entropy of the distributions that the step's tokens were drawn from; nats. Paper 0.2."""
    step: float = Field(default=0.005, gt=0, le=1e3)
    """Change of the weight after a step, in loss per nat. Paper 0.005."""
    coef: float = Field(default=0.0, ge=0, le=1e3)
    """Weight at the start of the run; it never falls below 0."""


Entropy = Annotated[NoEntropyBonus | EntropyBonus | AdaptiveEntropy, Field(discriminator="type")]


class NoNll(Frozen):
    """No imitation term."""

    type: Literal["none"] = "none"


class PositiveNll(Frozen):
    """Add the mean negative log-likelihood of all tokens of correct completions (VAPO, arXiv:2504.05118)."""

    type: Literal["positive"] = "positive"
    coef: float = Field(default=0.1, ge=0, le=1e3)
    """Weight of the term; loss per nat. VAPO 0.1. The mean is over the tokens of the optimizer batch that
    belong to correct completions; the paper leaves the divisor open."""


Nll = Annotated[NoNll | PositiveNll, Field(discriminator="type")]
