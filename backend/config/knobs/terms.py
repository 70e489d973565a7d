"""Config of the aggregation of token losses, and of the entropy and imitation terms."""

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
    """Mean over completions of the mean over their tokens, so that tokens of
    long answers have less weight (GRPO).
    """

    type: Literal["seq_mean_token_mean"] = "seq_mean_token_mean"


class TokenMean(Frozen):
    """Mean over all tokens of the optimizer batch (DAPO, arXiv:2503.14476)."""

    type: Literal["token_mean"] = "token_mean"
    over: Literal["trained", "sampled"] = "trained"
    """Tokens that the divisor counts if filters.groups leaves out groups that are not replaced: those of the
    groups that are trained on, or those of all sampled groups.
    """


class PromptMean(Frozen):
    """Mean over prompts of the token mean in each prompt's group (DAPO's formula; Magistral)."""

    type: Literal["prompt_mean"] = "prompt_mean"


class SeqMeanTokenSum(Frozen):
    """Mean over completions of the sum over their tokens (REINFORCE, RLOO)."""

    type: Literal["seq_mean_token_sum"] = "seq_mean_token_sum"


class SeqMeanTokenSumNorm(Frozen):
    """Mean over completions of the token sum divided by a constant, without a
    length bias (Dr. GRPO, arXiv:2503.20783).
    """

    type: Literal["seq_mean_token_sum_norm"] = "seq_mean_token_sum_norm"
    l_max: Annotated[int, Field(ge=1, le=10_000_000)] | Literal["max_new_tokens"] = "max_new_tokens"
    """The constant, in tokens, or max_new_tokens for the maximum completion length. The paper uses 3000."""


Aggregation = Annotated[
    SeqMeanTokenMean | TokenMean | PromptMean | SeqMeanTokenSum | SeqMeanTokenSumNorm,
    Field(discriminator="type"),
]


class NoEntropyBonus(Frozen):
    """No entropy term. The entropy is still measured."""

    type: Literal["none"] = "none"


class EntropyBonus(Frozen):
    """Subtract coef times the entropy of the full next-token
    distribution, aggregated like the policy loss.
    """

    type: Literal["bonus"] = "bonus"
    coef: float = Field(default=0.001, ge=-1e3, le=1e3)
    """Weight of the bonus, in loss per nat. Reinforce-Rej uses 0.001. Negative values penalise entropy."""


class AdaptiveEntropy(Frozen):
    """A bonus whose weight increases after each step with an entropy below the target and decreases after the
    others. It is only used while the entropy is at or below the target (Skywork-OR1, arXiv:2505.22312).
    """

    type: Literal["adaptive"] = "adaptive"
    target: float = Field(default=0.2, ge=0, le=20)
    """Target of the mean entropy of the distributions from which tokens
    are drawn, in nats. The paper uses 0.2.
    """
    step: float = Field(default=0.005, gt=0, le=1e3)
    """Change of the weight after a step, in loss per nat. The paper uses 0.005."""
    coef: float = Field(default=0.0, ge=0, le=1e3)
    """Weight at the start of the run. It never falls below 0."""


Entropy = Annotated[NoEntropyBonus | EntropyBonus | AdaptiveEntropy, Field(discriminator="type")]


class NoNll(Frozen):
    """No imitation term."""

    type: Literal["none"] = "none"


class PositiveNll(Frozen):
    """Add the mean negative log-likelihood of all tokens of correct completions (VAPO, arXiv:2504.05118)."""

    type: Literal["positive"] = "positive"
    coef: float = Field(default=0.1, ge=0, le=1e3)
    """Weight of the term, in loss per nat. VAPO uses 0.1. The mean is over the tokens of correct completions
    in the optimizer batch. The paper does not specify the divisor.
    """


Nll = Annotated[NoNll | PositiveNll, Field(discriminator="type")]
