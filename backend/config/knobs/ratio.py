"""Knobs of the importance ratio: its level and the policy it compares with."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from backend.config.base import Frozen

__all__ = [
    "NoRatio",
    "Ratio",
    "RatioType",
    "SequenceGeometricRatio",
    "SequenceGeometricTokenRatio",
    "SequenceProductRatio",
    "TokenRatio",
]


RatioType = Literal["token", "seq_geo", "seq_geo_token", "seq_product", "none"]


class _LogProbs(Frozen):
    is_shared: ClassVar[bool] = False
    """Whether the tokens of a completion share one ratio, and with it one gradient."""

    logprob_temperature: Literal["sampling", "one"] = "sampling"
    """Logits are divided by this before the log-softmax: the sampling temperature (so that the ratio is 1 on
    fresh rollouts), or one, as the book's scripts do."""


class _Ratio(_LogProbs):
    old: Literal["recompute", "sampler", "current"] = "recompute"
    """Denominator of the ratio. recompute: the trainer's weights at the start of the step; sampler: what
    the sampler reported, which folds the mismatch into the ratio; current: the present weights, so the ratio
    is 1."""


class TokenRatio(_Ratio):
    """One ratio per token (PPO, arXiv:1707.06347; GRPO)."""

    type: Literal["token"] = "token"


class SequenceGeometricRatio(_Ratio):
    """One ratio per completion, the geometric mean of its token ratios (GSPO, arXiv:2507.18071)."""

    type: Literal["seq_geo"] = "seq_geo"
    is_shared = True


class SequenceGeometricTokenRatio(_Ratio):
    """The sequence's value on every token but each token's own gradient (GSPO-token, arXiv:2507.18071)."""

    type: Literal["seq_geo_token"] = "seq_geo_token"


class SequenceProductRatio(_Ratio):
    """One ratio per completion, the product of its token ratios, which grows with length (the book)."""

    type: Literal["seq_product"] = "seq_product"
    is_shared = True


class NoRatio(_LogProbs):
    """No ratio: the loss is -A log p (REINFORCE, Williams 1992)."""

    type: Literal["none"] = "none"


Ratio = Annotated[
    TokenRatio | SequenceGeometricRatio | SequenceGeometricTokenRatio | SequenceProductRatio | NoRatio,
    Field(discriminator="type"),
]
