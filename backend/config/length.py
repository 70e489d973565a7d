"""Length settings: how the length of completions changes rewards and the loss."""

from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from backend.config.base import Frozen, refusal


class KeepTruncated(Frozen):
    """Completions truncated at the cap train like all others."""

    type: Literal["keep"] = "keep"


class MaskTruncated(Frozen):
    """Completions truncated at the cap take no part in the loss (DAPO's overlong filtering)."""

    type: Literal["mask"] = "mask"


class ScaleTruncatedReward(Frozen):
    """The reward of completions truncated at the cap is multiplied by a factor (arXiv:2510.15110); a reward
    below 0 stays as it is, because a value nearer to 0 would reward truncation.
    """

    type: Literal["scale_reward"] = "scale_reward"

    factor: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Factor on the reward."""


Truncated = Annotated[KeepTruncated | MaskTruncated | ScaleTruncatedReward, Field(discriminator="type")]


class NoLengthPenalty(Frozen):
    """Length does not change the reward."""

    type: Literal["none"] = "none"


class Ramp(NamedTuple):
    """The ramp of a length penalty, in tokens."""

    start: int
    """L_max - L_cache, in tokens."""
    width: int
    """L_cache, in tokens."""


class _Overlong(Frozen):
    max_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """L_max as a fraction of max_new_tokens."""

    cache_fraction: Annotated[float, Field(gt=0, le=1)] = 0.2
    """L_cache, the width of the ramp, as a fraction of max_new_tokens."""

    @model_validator(mode="after")
    def _ramp_inside(self) -> Self:
        if self.cache_fraction > self.max_fraction:
            raise refusal([("cache_fraction", f"must be at most max_fraction = {self.max_fraction:g}")])
        return self

    def ramp(self, max_new_tokens: int) -> Ramp:
        """Return the ramp in tokens of a run with this cap."""
        limit, width = (
            max(1, round(fraction * max_new_tokens)) for fraction in (self.max_fraction, self.cache_fraction)
        )
        return Ramp(limit - width, width)


class SoftOverlong(_Overlong):
    """A penalty that falls linearly from 0 to -1 over the last part of the allowed length (DAPO)."""

    type: Literal["soft_overlong"] = "soft_overlong"


class MagistralPenalty(_Overlong):
    """A penalty that falls linearly from 0 to -0.1 over the last part of the allowed length (Magistral,
    arXiv:2506.10910).
    """

    type: Literal["magistral"] = "magistral"


LengthPenalty = Annotated[NoLengthPenalty | SoftOverlong | MagistralPenalty, Field(discriminator="type")]


class LengthConfig(Frozen):
    """The effect of length on reward and loss."""

    truncated: Truncated = KeepTruncated()
    """Treatment of completions truncated at the cap."""

    penalty: LengthPenalty = NoLengthPenalty()
    """A penalty added to the reward."""
