"""Config of the surrogate, which limits the change of the policy by a ratio."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from backend.config.base import Frozen
from backend.config.knobs.ratio import RatioType

__all__ = [
    "AnyTokenMask",
    "BookSigned",
    "ClipCov",
    "DivergenceMask",
    "DynamicClip",
    "Fipo",
    "GeoToken",
    "KlCov",
    "NoSurrogate",
    "NoTokenMask",
    "PpoClip",
    "PpoTokenMask",
    "Sapo",
    "Surrogate",
    "Vespo",
    "WeightCap",
]


class _Surrogate(Frozen):
    ratios: ClassVar[tuple[RatioType, ...]]
    """Types of ratios for which the surrogate is defined."""
    acts: ClassVar[str]
    """Description of the surrogate for the message that refuses other ratios."""
    needs_drift: ClassVar[bool] = True
    """Whether the surrogate has no effect while all ratios are 1."""
    weighs_tokens: ClassVar[bool] = False
    """Whether the surrogate weights each token's log-probability even if the tokens share one ratio."""


class NoSurrogate(_Surrogate):
    """No clipping: ratio times advantage, or log-probability times advantage without a ratio."""

    type: Literal["none"] = "none"
    ratios = ("token", "seq_geo", "seq_geo_token", "seq_product", "none")
    acts = "bounds nothing"
    needs_drift = False


class _DualClip(_Surrogate):
    dual_clip: float = Field(default=0, ge=0, le=1e6)
    """Maximum ratio if the advantage is negative, so that a single bad token cannot dominate. 0 turns it off;
    otherwise it must be above 1, typically 3 (Dual-clip PPO, arXiv:1912.09729).
    """


class PpoClip(_DualClip):
    """min(r A, clip(r, 1-eps_low, 1+eps_high) A) (PPO, arXiv:1707.06347; DAPO, arXiv:2503.14476)."""

    type: Literal["ppo_clip"] = "ppo_clip"
    ratios = ("token", "seq_geo", "seq_geo_token", "seq_product")
    acts = "clips a ratio"
    eps_low: float = Field(default=0.2, ge=0, le=1e3)
    """Distance of the lower bound below 1, about 0.2 for token ratios and 3e-4 for seq_geo."""
    eps_high: float = Field(default=0.2, ge=0, le=1e3)
    """Distance of the upper bound above 1. A value above eps_low is known as clip-higher."""


class BookSigned(_Surrogate):
    """The book's listing 7.8, with min for A >= 0 but max for A < 0, so
    that only the upper bound has an effect.
    """

    type: Literal["book_signed"] = "book_signed"
    ratios = ("token", "seq_geo", "seq_geo_token", "seq_product")
    acts = "clips a ratio"
    eps_high: float = Field(default=10.0, ge=0, le=1e3)
    """Distance of the upper bound above 1. The book uses 10."""


class NoTokenMask(Frozen):
    """All tokens keep their gradient."""

    type: Literal["none"] = "none"


class PpoTokenMask(Frozen):
    """Drop the tokens whose gradient PPO's clip would remove: A > 0 and r >
    1+eps_high, or A < 0 and r < 1-eps_low.
    """

    type: Literal["ppo"] = "ppo"
    eps_low: float = Field(default=0.2, ge=0, le=1e3)
    """Distance of the lower bound below 1."""
    eps_high: float = Field(default=0.28, ge=0, le=1e3)
    """Distance of the upper bound above 1."""


AnyTokenMask = Annotated[NoTokenMask | PpoTokenMask, Field(discriminator="type")]


class WeightCap(_Surrogate):
    """min(r, cap) as a detached weight of A log p, with which all tokens
    keep a gradient (CISPO, arXiv:2506.13585).
    """

    type: Literal["weight_cap"] = "weight_cap"
    ratios = ("token",)
    acts = "caps the weight of each single token"
    needs_drift = False
    cap: float = Field(default=5.0, gt=0, le=1e6)
    """Maximum weight, as an absolute ratio. The paper gives no value; ScaleRL (arXiv:2510.13786) uses 5. At
    or below 1 the weights are biased.
    """
    token_mask: AnyTokenMask = NoTokenMask()
    """Optional mask M of the paper's unified form."""


class GeoToken(_Surrogate):
    """Clip each token's log-ratio on one side, then take the geometric mean (GMPO, arXiv:2507.20673)."""

    type: Literal["geo_token"] = "geo_token"
    ratios = ("seq_geo",)
    acts = "clips token log-ratios inside a geometric mean"
    eps_low: float = Field(default=0.4, ge=0, le=20)
    """Distance of the lower bound of the log-ratio below 0, in nats. 0.4 means ratios above 0.67."""
    eps_high: float = Field(default=0.4, ge=0, le=20)
    """Upper bound of the log-ratio, in nats. 0.4 means ratios below 1.49."""


class Sapo(_Surrogate):
    """A smooth gate sigmoid(tau (r-1)) 4/tau instead of a hard clip (SAPO, arXiv:2511.20347)."""

    type: Literal["sapo"] = "sapo"
    ratios = ("token", "seq_geo")
    acts = "gates a ratio that stays near 1"
    tau_pos: float = Field(default=1.0, gt=0, le=1e3)
    """Sharpness of the gate for A > 0. The weight of the gradient is 1 at r =
    1 and falls off faster for larger tau.
    """
    tau_neg: float = Field(default=1.05, gt=0, le=1e3)
    """Sharpness of the gate for A <= 0."""


class DynamicClip(_DualClip):
    """PPO's min with bounds that widen as the old probability q shrinks (DCPO, arXiv:2509.02333)."""

    type: Literal["dynamic"] = "dynamic"
    ratios = ("token",)
    acts = "takes its bounds from each token's old probability"
    eps_low: float = Field(default=0.16, ge=0, le=1)
    """Parameter of the lower bound 0.5 + 0.5 sqrt(max(1 - 4 eps_low / q, 0)), in units of probability."""
    eps_high: float = Field(default=0.2, ge=0, le=1)
    """Parameter of the upper bound 0.5 + 0.5 sqrt(1 + 4 eps_high / q), in units of probability."""
    r_max: float = Field(default=10.0, ge=1, le=1e6)
    """Maximum of the upper bound, as a ratio."""


class DivergenceMask(_Surrogate):
    """min(r, cap) as a detached weight of A log p, except for tokens whose probability has already moved too
    far in the direction of their advantage (DPPO, arXiv:2602.04879). The distance of the two policies is the
    paper's binary divergence, which only distinguishes whether the token is drawn or not.
    """

    type: Literal["divergence"] = "divergence"
    ratios = ("token",)
    acts = "measures how far each single token has moved"
    measure: Literal["tv", "kl"] = "tv"
    """Distance between the old probability q and the new probability p of a token. tv is |p - q|, from 0 to
    1. kl is q log(q / p) + (1 - q) log((1 - q) / (1 - p)), in nats.
    """
    low: float = Field(default=0.2, ge=0, le=1e3)
    """Maximum distance by which the probability of a token with negative advantage may have fallen. Usual
    values are 0.2 (prime-rl) or 0.15 for tv, and 0.05 for kl (the authors' recipe for verl).
    """
    high: float = Field(default=0.2, ge=0, le=1e3)
    """Maximum distance by which the probability of a token with positive advantage may
    have risen. The usual values are those of low.
    """
    cap: float = Field(default=20.0, gt=0, le=1e6)
    """Maximum weight, as an absolute ratio. verl uses 20. The paper warns
    against small values, which bias the gradient.
    """


class Vespo(_Surrogate):
    """A smooth weight phi(w) of A log p instead of a hard clip. It is 1 at w = 1 and small far from it, and w
    is the ratio of the probabilities of whole completions (VESPO, arXiv:2602.10693).

        phi(w) = w^k exp(lambda (1 - w))
    """

    type: Literal["vespo"] = "vespo"
    ratios = ("seq_product",)
    acts = "weighs whole completions by the ratio of their probabilities"
    weighs_tokens = True
    k_pos: float = Field(default=2.0, ge=0, le=1e3)
    """k for A >= 0. Larger values give less weight to completions that have become unlikely. TRL uses 2."""
    lambda_pos: float = Field(default=3.0, ge=0, le=1e3)
    """lambda for A >= 0. Larger values give less weight to completions
    that have become likely. TRL uses 3.
    """
    k_neg: float = Field(default=3.0, ge=0, le=1e3)
    """k for A < 0. TRL uses 3."""
    lambda_neg: float = Field(default=2.0, ge=0, le=1e3)
    """lambda for A < 0. TRL uses 2."""


class ClipCov(_Surrogate):
    """PPO's clip that also removes the gradient of a few tokens, drawn at random from those whose covariance
    of log-probability and advantage is within bounds, because they reduce the entropy (Clip-Cov,
    arXiv:2505.22617). cov = (log p - mean log p) (A - mean A), with means over the tokens of the optimizer
    step.
    """

    type: Literal["clip_cov"] = "clip_cov"
    ratios = ("token",)
    acts = "singles out tokens by their own covariance"
    needs_drift = False
    eps_low: float = Field(default=1.0, ge=0, le=1e3)
    """Distance of the lower bound of the ratio below 1. The authors' script uses 1,
    so that only the covariance has an effect.
    """
    eps_high: float = Field(default=1.0, ge=0, le=1e3)
    """Distance of the upper bound of the ratio above 1. The authors' script uses 1."""
    share: float = Field(default=2e-4, gt=0, le=1)
    """Fraction of the optimizer step's tokens that are drawn, at least one.
    The authors' script and verl use 2e-4.
    """
    low: float = Field(default=1.0, ge=-1e6, le=1e6)
    """Lower bound of the covariance. The authors' script and verl use 1."""
    high: float = Field(default=5.0, ge=-1e6, le=1e6)
    """Upper bound of the covariance. The authors' script and verl use 5."""


class KlCov(_Surrogate):
    """No clip, but a penalty on the distance from the old probability for the tokens with the highest
    covariance of log-probability and advantage: r A - coef |log r| for them, and r A for the others (KL-Cov,
    arXiv:2505.22617).
    """

    type: Literal["kl_cov"] = "kl_cov"
    ratios = ("token",)
    acts = "singles out tokens by their own covariance"
    share: float = Field(default=2e-3, gt=0, le=1)
    """Fraction of the optimizer step's tokens that get the penalty, at least
    one. verl's recipe uses 2e-3, its code 2e-4.
    """
    coef: float = Field(default=1.0, ge=0, le=1e3)
    """Weight of the penalty, per nat. The authors' script and verl use 1."""


class Fipo(_DualClip):
    """PPO's clip with a detached weight for each token, which is larger if the tokens after it have become
    more likely (future-KL influenced policy optimization, FIPO, arXiv:2603.19835).
    """

    type: Literal["fipo"] = "fipo"
    ratios = ("token",)
    acts = "weighs each token by the ratios of those after it"
    eps_low: float = Field(default=0.2, ge=0, le=1e3)
    """Distance of the lower bound of the ratio below 1."""
    eps_high: float = Field(default=0.2, ge=0, le=1e3)
    """Distance of the upper bound of the ratio above 1."""
    half_life: float = Field(default=32.0, gt=0, le=1e6)
    """Distance in tokens at which the log-ratio of a later token counts half. ms-swift uses 32."""
    low: float = Field(default=1.0, gt=0, le=1)
    """Minimum weight. ms-swift uses 1, or 0.8 if weights below 1 are allowed."""
    high: float = Field(default=1.2, ge=1, le=1e3)
    """Maximum weight. ms-swift uses 1.2."""
    safety: float = Field(default=4.0, ge=1, le=1e6)
    """Ratio above which the weight of a token with a negative advantage is
    limited to 0.8 to 1. ms-swift uses 4.
    """


Surrogate = Annotated[
    PpoClip
    | GeoToken
    | WeightCap
    | Sapo
    | Vespo
    | DynamicClip
    | DivergenceMask
    | ClipCov
    | KlCov
    | Fipo
    | BookSigned
    | NoSurrogate,
    Field(discriminator="type"),
]
