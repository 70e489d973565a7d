"""Config of the treatment of off-policy completions: corrections, masks and router shift."""

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
    """No correction. The sampler and the trainer are assumed to agree."""

    type: Literal["none"] = "none"


class TokenTis(_Correction):
    """Weight the loss of each token by min(rho, cap) with rho = p_old / p_sampler (truncated importance
    sampling, Yao et al. 2025; Olmo 3, arXiv:2512.13961).
    """

    type: Literal["token_tis"] = "token_tis"
    cap: float = Field(default=2.0, gt=0, le=1e6)
    """Maximum weight, usually 1.5 to 5."""


class TokenMask(_Correction):
    """Weight each token by rho if low <= rho <= high, and otherwise drop it (IcePop, arXiv:2510.18855)."""

    type: Literal["token_mask"] = "token_mask"
    low: float = Field(default=0.5, ge=0, le=1)
    """Minimum rho."""
    high: float = Field(default=5.0, ge=1, le=1e6)
    """Maximum rho."""


class SequenceTis(_Correction):
    """Weight the loss of each completion by its truncated rho (verl's rollout correction)."""

    type: Literal["seq_tis"] = "seq_tis"
    is_shared = True
    level: Literal["product", "geo"] = "product"
    """Definition of the rho of a completion: the product of its token rhos
    (unbiased), or their geometric mean.
    """
    cap: float = Field(default=2.0, gt=0, le=1e6)
    """Maximum weight, usually 2 to 10."""


class SequenceMask(_Correction):
    """Weight each completion by its rho if low <= rho <= high, and otherwise drop it (TRL, with high = 3)."""

    type: Literal["seq_mask"] = "seq_mask"
    is_shared = True
    level: Literal["product", "geo"] = "product"
    """Definition of the rho of a completion: the product of its token rhos, or their geometric mean."""
    low: float = Field(default=0.0, ge=0, le=1)
    """Minimum rho."""
    high: float = Field(default=3.0, ge=1, le=1e6)
    """Maximum rho."""


class SequenceK3(_Correction):
    """Leave out completions whose mean over tokens of k3 = rho - 1 - log rho is above a threshold, because
    the sampler and the trainer disagree on them. All others have weight 1. As if they were masked, the tokens
    of a completion that is left out are not counted in divisors (verl's rollout correction), but means over
    completions or prompts still count the completion.
    """

    type: Literal["seq_k3"] = "seq_k3"
    is_shared = True
    threshold: float = Field(default=0.01, gt=0, le=1e6)
    """Maximum mean k3, in nats per token. verl uses 0.01."""


class GeoFilter(_Correction):
    """Keep completions whose geometric mean of rho is within the bounds, and
    weight their tokens by rho (NeMo-RL).
    """

    type: Literal["geo_filter"] = "geo_filter"
    low: float = Field(default=0.999, ge=0, le=1)
    """Minimum geometric mean."""
    high: float = Field(default=1.002, ge=1, le=1e6)
    """Maximum geometric mean."""


Correction = Annotated[
    NoCorrection | TokenTis | TokenMask | SequenceTis | SequenceMask | SequenceK3 | GeoFilter,
    Field(discriminator="type"),
]


class NoOffPolicyMask(Frozen):
    """All completions count, regardless of how far the policy has moved since they were sampled."""

    type: Literal["none"] = "none"


class Opsm(Frozen):
    """Leave out completions with a negative advantage that have become much less likely under the policy
    (off-policy sequence masking, DeepSeek-V3.2, arXiv:2512.02556). The KL term still includes them.
    """

    type: Literal["opsm"] = "opsm"
    delta: float = Field(default=0.5, ge=0, le=100)
    """Maximum mean over tokens of log p_source - log p, in nats per token. The paper gives no value. TRL
    suggests 0.5, and the book's script uses 0.1 with source old.
    """
    source: Literal["sampler", "old"] = "sampler"
    """Policy p_source: the sampler (as in the paper), or the trainer's weights at the start of the step."""


OffPolicyMask = Annotated[NoOffPolicyMask | Opsm, Field(discriminator="type")]


class NoRouterShift(Frozen):
    """Ratios do not depend on the router."""

    type: Literal["none"] = "none"


class RouterShift(Frozen):
    """Multiply the ratio of each token by gamma, which decreases as the router moves away from the experts
    that it chose for the token (RSPO, arXiv:2510.23027). A dense policy has gamma 1.
    """

    type: Literal["router_shift"] = "router_shift"
    gamma_min: float = Field(default=0.8, gt=0, le=1)
    """Minimum gamma. The paper gives no number; 0.8 comes from third-party code."""


Router = Annotated[NoRouterShift | RouterShift, Field(discriminator="type")]
