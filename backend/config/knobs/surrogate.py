"""Knobs of the surrogate: how far a ratio may move the policy."""

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
    """The ratios that it is defined for."""
    acts: ClassVar[str]
    """Phrase for what the surrogate does, for the message that refuses any other ratio."""
    needs_drift: ClassVar[bool] = True
    """Whether it changes nothing as long as every ratio is 1."""
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
    """Cap of the ratio if the advantage is negative, so that one bad token cannot dominate; 0 = off,
    otherwise > 1, typically 3 (Dual-clip PPO, arXiv:1912.09729)."""


class PpoClip(_DualClip):
    """min(r A, clip(r, 1-eps_low, 1+eps_high) A) (PPO, arXiv:1707.06347; DAPO, arXiv:2503.14476)."""

    type: Literal["ppo_clip"] = "ppo_clip"
    ratios = ("token", "seq_geo", "seq_geo_token", "seq_product")
    acts = "clips a ratio"
    eps_low: float = Field(default=0.2, ge=0, le=1e3)
    """Distance of the lower bound below 1. Token ratios about 0.2, seq_geo about 3e-4."""
    eps_high: float = Field(default=0.2, ge=0, le=1e3)
    """Distance of the upper bound above 1. Above eps_low = clip-higher."""


class BookSigned(_Surrogate):
    """The book's listing 7.8: min for A >= 0 but max for A < 0, so only the upper bound acts."""

    type: Literal["book_signed"] = "book_signed"
    ratios = ("token", "seq_geo", "seq_geo_token", "seq_product")
    acts = "clips a ratio"
    eps_high: float = Field(default=10.0, ge=0, le=1e3)
    """Distance of the upper bound above 1; book 10."""


class NoTokenMask(Frozen):
    """Every token keeps a gradient."""

    type: Literal["none"] = "none"


class PpoTokenMask(Frozen):
    """Drop the tokens that PPO's clip would silence: A > 0 and r > 1+eps_high, or A < 0 and r < 1-eps_low."""

    type: Literal["ppo"] = "ppo"
    eps_low: float = Field(default=0.2, ge=0, le=1e3)
    """Distance of the lower bound below 1."""
    eps_high: float = Field(default=0.28, ge=0, le=1e3)
    """Distance of the upper bound above 1."""


AnyTokenMask = Annotated[NoTokenMask | PpoTokenMask, Field(discriminator="type")]


class WeightCap(_Surrogate):
    """min(r, cap) as a detached weight on A log p: every token keeps a gradient (CISPO, arXiv:2506.13585)."""

    type: Literal["weight_cap"] = "weight_cap"
    ratios = ("token",)
    acts = "caps the weight of each single token"
    needs_drift = False
    cap: float = Field(default=5.0, gt=0, le=1e6)
    """Largest weight, as an absolute ratio. The paper does not say; ScaleRL (arXiv:2510.13786) uses 5. At or
    below 1 the weights are biased."""
    token_mask: AnyTokenMask = NoTokenMask()
    """Optional mask M of the paper's unified form."""


class GeoToken(_Surrogate):
    """Clip each token's log-ratio on one side, then take the geometric mean (GMPO, arXiv:2507.20673)."""

    type: Literal["geo_token"] = "geo_token"
    ratios = ("seq_geo",)
    acts = "clips token log-ratios inside a geometric mean"
    eps_low: float = Field(default=0.4, ge=0, le=20)
    """Lower bound of the log-ratio is -eps_low; nats. 0.4 means ratios above 0.67."""
    eps_high: float = Field(default=0.4, ge=0, le=20)
    """Upper bound of the log-ratio; nats. 0.4 means ratios below 1.49."""


class Sapo(_Surrogate):
    """A smooth gate sigmoid(tau (r-1)) 4/tau in place of a hard clip (SAPO, arXiv:2511.20347)."""

    type: Literal["sapo"] = "sapo"
    ratios = ("token", "seq_geo")
    acts = "gates a ratio that stays near 1"
    tau_pos: float = Field(default=1.0, gt=0, le=1e3)
    """Sharpness of the gate for A > 0; the gradient weight is 1 at r = 1, less for larger tau."""
    tau_neg: float = Field(default=1.05, gt=0, le=1e3)
    """Sharpness of the gate for A <= 0."""


class DynamicClip(_DualClip):
    """PPO's min with bounds that widen as the old probability q shrinks (DCPO, arXiv:2509.02333)."""

    type: Literal["dynamic"] = "dynamic"
    ratios = ("token",)
    acts = "takes its bounds from each token's old probability"
    eps_low: float = Field(default=0.16, ge=0, le=1)
    """Sets the lower bound 0.5 + 0.5 sqrt(max(1 - 4 eps_low / q, 0)); in units of probability."""
    eps_high: float = Field(default=0.2, ge=0, le=1)
    """Sets the upper bound 0.5 + 0.5 sqrt(1 + 4 eps_high / q); in units of probability."""
    r_max: float = Field(default=10.0, ge=1, le=1e6)
    """The upper bound never exceeds this ratio."""


class DivergenceMask(_Surrogate):
    """min(r, cap) as a detached weight on A log p, but for tokens whose probability has already moved too far
    in the direction of their advantage (DPPO, arXiv:2602.04879). The distance of the two policies is measured
    as if a token were either drawn or not: the paper's binary divergence.
    """

    type: Literal["divergence"] = "divergence"
    ratios = ("token",)
    acts = "measures how far each single token has moved"
    measure: Literal["tv", "kl"] = "tv"
    """tv: |p - q|, q the old probability of the token and p the new one, 0 to 1; kl: q log(q / p) + (1 - q)
    log((1 - q) / (1 - p)), nats."""
    low: float = Field(default=0.2, ge=0, le=1e3)
    """Largest distance by which a token of negative advantage may have fallen. tv 0.2 (prime-rl) or 0.15, kl
    0.05 (the authors' recipe for verl)."""
    high: float = Field(default=0.2, ge=0, le=1e3)
    """Largest distance by which a token of positive advantage may have risen. Usual values: those of low."""
    cap: float = Field(default=20.0, gt=0, le=1e6)
    """Largest weight, as an absolute ratio. verl 20: the paper warns against small ones, which bias the
    gradient."""


class Vespo(_Surrogate):
    """A smooth weight phi(w) before A log p in place of a hard clip, 1 at w = 1 and small far from it; w is
    the ratio of the probabilities of whole completions (VESPO, arXiv:2602.10693).

        phi(w) = w^k exp(lambda (1 - w))
    """

    type: Literal["vespo"] = "vespo"
    ratios = ("seq_product",)
    acts = "weighs whole completions by the ratio of their probabilities"
    weighs_tokens = True
    k_pos: float = Field(default=2.0, ge=0, le=1e3)
    """k for A >= 0: larger values give less weight to completions that have become unlikely. TRL 2."""
    lambda_pos: float = Field(default=3.0, ge=0, le=1e3)
    """lambda for A >= 0: larger values give less weight to completions that have become likely. TRL 3."""
    k_neg: float = Field(default=3.0, ge=0, le=1e3)
    """k for A < 0. TRL 3."""
    lambda_neg: float = Field(default=2.0, ge=0, le=1e3)
    """lambda for A < 0. TRL 2."""


class ClipCov(_Surrogate):
    """PPO's clip that also takes the gradient from a few tokens, drawn at random among those whose covariance
    of log-probability and advantage lies in a band: they are what makes entropy fall (Clip-Cov,
    arXiv:2505.22617). cov = (log p - mean log p) (A - mean A), means over the optimizer step's tokens.
    """

    type: Literal["clip_cov"] = "clip_cov"
    ratios = ("token",)
    acts = "singles out tokens by their own covariance"
    needs_drift = False
    eps_low: float = Field(default=1.0, ge=0, le=1e3)
    """Distance of the lower bound of the ratio below 1. The authors' script: 1, so that only the covariance
    acts."""
    eps_high: float = Field(default=1.0, ge=0, le=1e3)
    """Distance of the upper bound of the ratio above 1. The authors' script: 1."""
    share: float = Field(default=2e-4, gt=0, le=1)
    """Share of the optimizer step's tokens that are drawn, at least one. Authors' script and verl: 2e-4."""
    low: float = Field(default=1.0, ge=-1e6, le=1e6)
    """Covariances above this are in the band. The authors' script and verl: 1."""
    high: float = Field(default=5.0, ge=-1e6, le=1e6)
    """Covariances below this are in the band. The authors' script and verl: 5."""


class KlCov(_Surrogate):
    """No clip; the tokens of highest covariance of log-probability and advantage are held back by a penalty
    on the distance from their old probability: r A - coef |log r| on them, r A on the others (KL-Cov,
    arXiv:2505.22617).
    """

    type: Literal["kl_cov"] = "kl_cov"
    ratios = ("token",)
    acts = "singles out tokens by their own covariance"
    share: float = Field(default=2e-3, gt=0, le=1)
    """Share of the optimizer step's tokens that are held back, at least one. verl's recipe 2e-3, its code
    2e-4."""
    coef: float = Field(default=1.0, ge=0, le=1e3)
    """Weight of the penalty; per nat. The authors' script and verl: 1."""


class Fipo(_DualClip):
    """PPO's clip, with a constant weight on each token that depends on how the policy has moved on the tokens
    after it: larger where these have become likelier (future-KL influenced policy optimization, FIPO,
    arXiv:2603.19835).
    """

    type: Literal["fipo"] = "fipo"
    ratios = ("token",)
    acts = "weighs each token by the ratios of those after it"
    eps_low: float = Field(default=0.2, ge=0, le=1e3)
    """Distance of the lower bound of the ratio below 1."""
    eps_high: float = Field(default=0.2, ge=0, le=1e3)
    """Distance of the upper bound of the ratio above 1."""
    half_life: float = Field(default=32.0, gt=0, le=1e6)
    """Tokens after which the log-ratio of a later token counts half. ms-swift 32."""
    low: float = Field(default=1.0, gt=0, le=1)
    """Smallest weight. ms-swift: 1, or 0.8 if weights below 1 are allowed."""
    high: float = Field(default=1.2, ge=1, le=1e3)
    """Largest weight. ms-swift 1.2."""
    safety: float = Field(default=4.0, ge=1, le=1e6)
    """Where the advantage is negative and the ratio above this, the weight is at most 1 and at least 0.8.
    ms-swift 4."""


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
