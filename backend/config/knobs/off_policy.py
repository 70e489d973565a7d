"""Knobs for off-policy completions: corrections, masks and router shift."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from backend.config.base import Frozen

__all__ = [
    "Correction",
    "GeoFilter",
    "NoCorrection",
    "NoOffPolicyMask",
    "NoRouterShift",
    "OffPolicyMask",
    "Opsm",
    "Router",
    "RouterShift",
    "SequenceK3",
    "SequenceMask",
    "SequenceTis",
    "TokenMask",
    "TokenTis",
]


class _Correction(Frozen):
    is_shared: ClassVar[bool] = False
    """Whether the tokens of a completion share one weight."""


class NoCorrection(_Correction):
    """Trust that sampler and trainer agree."""

    type: Literal["none"] = "none"


class TokenTis(_Correction):
    """Weight each token's loss by min(rho, cap), rho = p_old / p_sampler (truncated importance sampling,
    Yao et al. 2025; Olmo 3, arXiv:2512.13961).
    """

    type: Literal["token_tis"] = "token_tis"
    cap: float = Field(default=2.0, gt=0, le=1e6)
    """Largest weight; 1.5 to 5."""


class TokenMask(_Correction):
    """Weight each token by rho if low <= rho <= high, else drop it (IcePop, arXiv:2510.18855)."""

    type: Literal["token_mask"] = "token_mask"
    low: float = Field(default=0.5, ge=0, le=1)
    """Smallest rho that counts."""
    high: float = Field(default=5.0, ge=1, le=1e6)
    """Largest rho that counts."""


class SequenceTis(_Correction):
    """Weight each completion's loss by its truncated rho (verl's rollout correction)."""

    type: Literal["seq_tis"] = "seq_tis"
    is_shared = True
    level: Literal["product", "geo"] = "product"
    """rho of a completion: the product of its token rhos (unbiased), or their geometric mean."""
    cap: float = Field(default=2.0, gt=0, le=1e6)
    """Largest weight; 2 to 10."""


class SequenceMask(_Correction):
    """Weight each completion by its rho if low <= rho <= high, else drop it (TRL: 3)."""

    type: Literal["seq_mask"] = "seq_mask"
    is_shared = True
    level: Literal["product", "geo"] = "product"
    """rho of a completion: the product of its token rhos, or their geometric mean."""
    low: float = Field(default=0.0, ge=0, le=1)
    """Smallest rho that counts."""
    high: float = Field(default=3.0, ge=1, le=1e6)
    """Largest rho that counts."""


class SequenceK3(_Correction):
    """Leave out the completions on which sampler and trainer disagree: the mean over tokens of
    k3 = rho - 1 - log rho is above a threshold; the others keep weight 1. The tokens of a completion that is
    left out are in no divisor either, as if they were masked (verl's rollout correction); a mean over
    completions or prompts still counts it.
    """

    type: Literal["seq_k3"] = "seq_k3"
    is_shared = True
    threshold: float = Field(default=0.01, gt=0, le=1e6)
    """Largest mean k3 that counts; nats per token. verl 0.01."""


class GeoFilter(_Correction):
    """Keep completions whose geometric mean of rho is in the band; weight their tokens by rho (NeMo-RL)."""

    type: Literal["geo_filter"] = "geo_filter"
    low: float = Field(default=0.999, ge=0, le=1)
    """Smallest geometric mean that counts."""
    high: float = Field(default=1.002, ge=1, le=1e6)
    """Largest geometric mean that counts."""


Correction = Annotated[
    NoCorrection | TokenTis | TokenMask | SequenceTis | SequenceMask | SequenceK3 | GeoFilter,
    Field(discriminator="type"),
]


class NoOffPolicyMask(Frozen):
    """All completions count, however far the policy has moved since they were written."""

    type: Literal["none"] = "none"


class Opsm(Frozen):
    """Leave out completions with a negative advantage that the policy has moved away from (off-policy
    sequence masking, DeepSeek-V3.2, arXiv:2512.02556). The KL term keeps them.
    """

    type: Literal["opsm"] = "opsm"
    delta: float = Field(default=0.5, ge=0, le=100)
    """Largest mean over tokens of log p_source - log p that still counts; nats per token. The paper does not
    say; TRL suggests 0.5, the book's script uses 0.1 with source old."""
    source: Literal["sampler", "old"] = "sampler"
    """Probabilities that the completion was written with: the sampler's (the paper), or those of the
    trainer's weights at the start of the step."""


OffPolicyMask = Annotated[NoOffPolicyMask | Opsm, Field(discriminator="type")]


class NoRouterShift(Frozen):
    """Ratios ignore the experts."""

    type: Literal["none"] = "none"


class RouterShift(Frozen):
    """Multiply each token's ratio by gamma, which falls as the router moves away from the experts that it
    chose for the token (RSPO, arXiv:2510.23027). A dense policy has gamma 1.
    """

    type: Literal["router_shift"] = "router_shift"
    gamma_min: float = Field(default=0.8, gt=0, le=1)
    """Smallest gamma; 0.8 comes from third-party code; the paper gives no number."""


Router = Annotated[NoRouterShift | RouterShift, Field(discriminator="type")]
