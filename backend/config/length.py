"""Config of the effect that the length of completions has on rewards and the loss."""

from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from backend.config.base import Frozen, combination_error


class KeepTruncated(Frozen):
    """Truncated completions are trained on like all others."""

    type: Literal["keep"] = "keep"


class MaskTruncated(Frozen):
    """Truncated completions are excluded from the loss (DAPO's overlong filtering)."""

    type: Literal["mask"] = "mask"


class ScaleTruncatedReward(Frozen):
    """Multiply the reward of truncated completions by a factor (arXiv:2510.15110). A negative reward does not
    change, because a value closer to 0 would reward truncation.
    """

    type: Literal["scale_reward"] = "scale_reward"

    factor: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Factor by which the reward is multiplied."""


Truncated = Annotated[KeepTruncated | MaskTruncated | ScaleTruncatedReward, Field(discriminator="type")]


class NoLengthPenalty(Frozen):
    """The reward does not depend on the length."""

    type: Literal["none"] = "none"


class Ramp(NamedTuple):
    """The range of lengths over which a length penalty increases, in tokens."""

    start: int
    """Length at which the ramp begins: L_max - L_cache."""
    width: int
    """Width of the ramp: L_cache."""


class _Overlong(Frozen):
    max_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Length L_max at which the ramp ends, as a fraction of max_new_tokens."""

    cache_fraction: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Width L_cache of the ramp, as a fraction of max_new_tokens."""

    @model_validator(mode="after")
    def _ramp_inside(self) -> Self:
        if self.cache_fraction > self.max_fraction:
            raise combination_error(
                [("cache_fraction", f"must be at most max_fraction = {self.max_fraction:g}")]
            )
        return self

    def ramp(self, max_new_tokens: int) -> Ramp:
        """Return the ramp in tokens for a run with this maximum completion length."""
        limit, width = (
            max(1, round(fraction * max_new_tokens)) for fraction in (self.max_fraction, self.cache_fraction)
        )
        return Ramp(limit - width, width)


class SoftOverlong(_Overlong):
    """A term that falls linearly from 0 to -1 over the last part of the allowed length (DAPO)."""

    type: Literal["soft_overlong"] = "soft_overlong"


class MagistralPenalty(_Overlong):
    """A term that falls linearly from 0 to -0.1 over the last part of the
    allowed length (Magistral, arXiv:2506.10910).
    """

    type: Literal["magistral"] = "magistral"


LengthPenalty = Annotated[NoLengthPenalty | SoftOverlong | MagistralPenalty, Field(discriminator="type")]


class LengthConfig(Frozen):
    """The effect of the completion length on reward and loss."""

    truncated: Truncated = KeepTruncated()
    """Treatment of completions that are truncated at the maximum length."""

    penalty: LengthPenalty = NoLengthPenalty()
    """Length penalty that is added to the reward."""
