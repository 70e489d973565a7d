"""Config of the importance ratio: its level and its denominator."""

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
    """Whether the tokens of a completion share one ratio and therefore one gradient."""

    logprob_temperature: Literal["sampling", "one"] = "sampling"
    """Divisor of the logits before the log-softmax: the sampling temperature, so that the ratio is 1 on fresh
    rollouts, or 1 as in the book's scripts.
    """


class _Ratio(_LogProbs):
    old: Literal["recompute", "sampler", "current"] = "recompute"
    """Denominator of the ratio. recompute uses the trainer's weights at the start of the step. sampler uses
    the probabilities that the sampler reported, so that the ratio includes the mismatch. current uses the
    current weights, so that the ratio is 1.
    """


class TokenRatio(_Ratio):
    """One ratio per token (PPO, arXiv:1707.06347; GRPO)."""

    type: Literal["token"] = "token"


class SequenceGeometricRatio(_Ratio):
    """One ratio per completion, the geometric mean of its token ratios (GSPO, arXiv:2507.18071)."""

    type: Literal["seq_geo"] = "seq_geo"
    is_shared = True


class SequenceGeometricTokenRatio(_Ratio):
    """The ratio of the completion for every token, but with a separate gradient for
    each token (GSPO-token, arXiv:2507.18071).
    """

    type: Literal["seq_geo_token"] = "seq_geo_token"


class SequenceProductRatio(_Ratio):
    """One ratio per completion, the product of its token ratios, which varies more with length (the book)."""

    type: Literal["seq_product"] = "seq_product"
    is_shared = True


class NoRatio(_LogProbs):
    """No ratio: the loss is -A log p (REINFORCE, Williams 1992)."""

    type: Literal["none"] = "none"


Ratio = Annotated[
    TokenRatio | SequenceGeometricRatio | SequenceGeometricTokenRatio | SequenceProductRatio | NoRatio,
    Field(discriminator="type"),
]
