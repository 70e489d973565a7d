"""The knobs of the objective: one discriminated union on `type` for each place where methods differ.

A member exists only where `worker/objective` computes it. Every field says its range, unit and
source; this text is also the API's schema and the help beside the browser form.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator

from backend.config.base import Frozen, refusal

Ddof = Literal[0, 1]


# ------------------------------------------------------------------------------------------------ advantage
class NoScale(Frozen):
    """Advantages stay in units of reward: no difficulty bias (Dr. GRPO, arXiv:2503.20783)."""

    type: Literal["none"] = "none"


class GroupStd(Frozen):
    """Divide by the standard deviation of the prompt's own group (GRPO, arXiv:2402.03300)."""

    type: Literal["group_std"] = "group_std"
    ddof: Ddof = 1
    """1: sample standard deviation (divide by G-1; torch, TRL, verl); 0: population (hand calculations)."""
    eps: float = Field(default=1e-4, ge=0, le=1)
    """Added to the standard deviation; units of reward. TRL 1e-4, verl 1e-6, Oat 1e-8."""


class BatchStd(Frozen):
    """Divide by the standard deviation of all rewards of the step (Lite PPO, arXiv:2508.08221)."""

    type: Literal["batch_std"] = "batch_std"
    ddof: Ddof = 1
    """1: sample standard deviation; 0: population."""
    eps: float = Field(default=1e-4, ge=0, le=1)
    """Added to the standard deviation; units of reward."""


class SeqWhiten(Frozen):
    """Mean 0 and deviation 1 over the completions of each minibatch (Magistral, arXiv:2506.10910)."""

    type: Literal["seq_whiten"] = "seq_whiten"
    ddof: Ddof = 1
    """1: sample standard deviation; 0: population."""
    eps: float = Field(default=1e-4, ge=0, le=1)
    """Added to the standard deviation; units of reward."""


class TokenWhiten(Frozen):
    """Mean 0 and deviation 1 over all tokens of the step (PPO; REINFORCE++, arXiv:2501.03262)."""

    type: Literal["token_whiten"] = "token_whiten"
    ddof: Ddof = 1
    """1: sample standard deviation (TRL, verl); 0: population (NeMo-RL)."""
    eps: float = Field(default=1e-8, ge=0, le=1)
    """Added to the standard deviation; units of reward."""


class Sas(Frozen):
    """Standardise by the group and by all earlier visits of the prompt, and take the smaller of two blends
    (smooth advantage standardisation, DCPO, arXiv:2509.02333). A group of equal rewards keeps a signal once
    earlier visits differed; on a prompt's first visit it is the group's deviation.
    """

    type: Literal["sas"] = "sas"
    ddof: Ddof = 1
    """1: sample standard deviation of each group; 0: population."""


Scale = Annotated[GroupStd | NoScale | BatchStd | SeqWhiten | TokenWhiten | Sas, Field(discriminator="type")]


class _Advantage(Frozen):
    @field_validator("scale", check_fields=False)
    @classmethod
    def _sas_has_a_baseline_of_its_own(cls, scale: Scale) -> Scale:
        baseline = cls.model_fields["type"].default
        if scale.type == "sas" and baseline != "group_mean":
            reason = (
                f"is sas, which takes off the mean of a prompt's visits, but the baseline is {baseline}: "
            )
            raise refusal([("type", reason + "baseline group_mean is expected")])
        return scale

    group_sum: Literal["mean", "sqrt"] = "mean"
    """What the sum over a group is divided by: mean = G (every paper), sqrt = the square root of G, which
    makes the gradient sqrt(G) times larger."""


class GroupMean(_Advantage):
    """Reward minus the mean of its group (GRPO, arXiv:2402.03300)."""

    type: Literal["group_mean"] = "group_mean"
    scale: Scale = GroupStd()
    """What the centred reward is divided by."""
    multi_reward: Literal["sum", "gdpo"] = "sum"
    """Several reward terms: sum = their weighted sum is the reward; gdpo = each is divided by its own group's
    deviation, then weighted, added up and whitened over the step (GDPO, arXiv:2601.05242); a length penalty
    is one of the terms."""

    @field_validator("multi_reward")
    @classmethod
    def _gdpo_has_a_scale_of_its_own(cls, multi_reward: str, info: ValidationInfo) -> str:
        scale = getattr(info.data.get("scale"), "type", "group_std")
        if multi_reward == "gdpo" and scale != "group_std":
            reason = f"is gdpo, which divides each reward by its group's deviation, but scale is {scale}: "
            raise ValueError(reason + "scale group_std is expected")
        return multi_reward


class LeaveOneOut(_Advantage):
    """Reward minus the mean of the other G-1 completions of its group (RLOO, arXiv:2402.14740)."""

    type: Literal["loo"] = "loo"
    scale: Scale = NoScale()
    """What the centred reward is divided by."""


class BatchMean(_Advantage):
    """Reward minus the mean of all rewards of the step (REINFORCE with a baseline, Williams 1992)."""

    type: Literal["batch_mean"] = "batch_mean"
    scale: Scale = NoScale()
    """What the centred reward is divided by."""


class MovingAverage(_Advantage):
    """Reward minus a moving average of the mean rewards of earlier steps, 0 at the start (Williams 1992)."""

    type: Literal["ema"] = "ema"
    decay: float = Field(default=0.9, ge=0, lt=1)
    """Share of the old average that is kept at each step; in [0, 1)."""
    scale: Scale = NoScale()
    """What the centred reward is divided by."""


class NoBaseline(_Advantage):
    """The reward itself: plain REINFORCE; with rewards 0 and 1 only correct completions move the policy."""

    type: Literal["none"] = "none"
    scale: Scale = NoScale()
    """What the reward is divided by."""


class LengthAdaptive(Frozen):
    """lambda = 1 - 1 / (alpha L) for a completion of L tokens, never below 0 (VAPO, arXiv:2504.05118)."""

    type: Literal["length_adaptive"] = "length_adaptive"
    alpha: float = Field(default=0.05, gt=0, le=1e3)
    """Larger values bring lambda nearer to 1; 1 / tokens. VAPO 0.05: lambda 0.8 at 100 tokens, 0.98 at 1000.
    Completions shorter than 1 / alpha tokens get lambda 0."""


class Critic(Frozen):
    """An advantage for each token, by a critic that is trained beside the policy: generalized advantage
    estimation (arXiv:1506.02438; PPO, arXiv:1707.06347). The reward
    stands on the last token; one completion per prompt is enough.
    """

    type: Literal["critic"] = "critic"
    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount per token. 1 for language models, 0.99 in games."""
    lambda_policy: Annotated[float, Field(ge=0, le=1)] | LengthAdaptive = 0.95
    """Weight of later tokens in the policy's advantages: 0 trusts the critic alone, 1 the reward alone. Or
    {"type": "length_adaptive", "alpha": 0.05}, which grows with the length of the completion."""
    lambda_critic: float = Field(default=1.0, ge=0, le=1)
    """The same for what the critic is taught; 1 is the reward that came, free of its own bias (VAPO). PPO's
    code uses one lambda for both."""
    n_step: int = Field(default=0, ge=0, le=10_000_000)
    """Look that many tokens ahead and then trust the critic; 0: to the end."""
    scale: Annotated[TokenWhiten | NoScale, Field(discriminator="type")] = TokenWhiten()
    """What the advantages are divided by. Groups are not compared, so there is no group_std."""


RewardAdvantage = Annotated[
    GroupMean | LeaveOneOut | BatchMean | MovingAverage | NoBaseline, Field(discriminator="type")
]
"""The ones that compare whole completions by their rewards."""

Advantage = Annotated[
    GroupMean | LeaveOneOut | BatchMean | MovingAverage | NoBaseline | Critic, Field(discriminator="type")
]


# ---------------------------------------------------------------------------------------------------- value
class Value(Frozen):
    """How the critic is trained; read only where the advantage is `critic`. It is a copy of the policy's body
    with weights and an optimizer of its own.
    """

    coef: float = Field(default=0.5, ge=0, le=1e3)
    """Weight of the critic's loss; 0.1 to 1. The critic's gradient is bounded by optimizer.max_grad_norm."""
    clip: float = Field(default=0.2, ge=0, le=1e6)
    """How far a value may move in one step before its gradient ends; units of reward, 0 = never (PPO's code:
    0.2)."""
    lr_factor: float = Field(default=2.0, gt=0, le=1e3)
    """The critic's learning rate in units of optimizer.lr. VAPO 2."""
    epochs: Annotated[int, Field(ge=1, le=1000)] | Literal["updates.epochs"] = "updates.epochs"
    """Passes over a step's rollouts; updates.epochs: as many as the policy makes. TRPO's code 80."""
    pretrain_steps: int = Field(default=0, ge=0, le=10_000_000)
    """First steps of the run in which the critic learns the rewards that come and the policy stays as it is.
    VAPO 50."""


# ---------------------------------------------------------------------------------------------------- ratio
class _LogProbs(Frozen):
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


class SequenceGeometricTokenRatio(_Ratio):
    """The sequence's value on every token but each token's own gradient (GSPO-token, arXiv:2507.18071)."""

    type: Literal["seq_geo_token"] = "seq_geo_token"


class SequenceProductRatio(_Ratio):
    """One ratio per completion, the product of its token ratios; it grows with length (the book)."""

    type: Literal["seq_product"] = "seq_product"


class NoRatio(_LogProbs):
    """No ratio: the loss is -A log p (REINFORCE, Williams 1992)."""

    type: Literal["none"] = "none"


Ratio = Annotated[
    TokenRatio | SequenceGeometricRatio | SequenceGeometricTokenRatio | SequenceProductRatio | NoRatio,
    Field(discriminator="type"),
]


# ------------------------------------------------------------------------------------------------ surrogate
class NoSurrogate(Frozen):
    """No clipping: ratio times advantage, or log-probability times advantage without a ratio."""

    type: Literal["none"] = "none"


class _DualClip(Frozen):
    dual_clip: float = Field(default=0, ge=0, le=1e6)
    """Cap of the ratio where the advantage is negative, so that one bad token cannot dominate; 0 = off,
    otherwise > 1, typically 3 (Dual-clip PPO, arXiv:1912.09729)."""


class PpoClip(_DualClip):
    """min(r A, clip(r, 1-eps_low, 1+eps_high) A) (PPO, arXiv:1707.06347; DAPO, arXiv:2503.14476)."""

    type: Literal["ppo_clip"] = "ppo_clip"
    eps_low: float = Field(default=0.2, ge=0, le=1e3)
    """Distance of the lower bound below 1. Token ratios about 0.2, seq_geo about 3e-4."""
    eps_high: float = Field(default=0.2, ge=0, le=1e3)
    """Distance of the upper bound above 1. Above eps_low = clip-higher."""


class BookSigned(Frozen):
    """The book's listing 7.8: min for A >= 0 but max for A < 0, so only the upper bound acts."""

    type: Literal["book_signed"] = "book_signed"
    eps_low: float = Field(default=10.0, ge=0, le=1e3)
    """Distance of the lower bound below 1; this rule never uses it for the loss."""
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


class WeightCap(Frozen):
    """min(r, cap) as a detached weight on A log p: every token keeps a gradient (CISPO, arXiv:2506.13585)."""

    type: Literal["weight_cap"] = "weight_cap"
    cap: float = Field(default=5.0, gt=0, le=1e6)
    """Largest weight, as an absolute ratio. The paper does not say; ScaleRL (arXiv:2510.13786) uses 5. At or
    below 1 the weights are biased."""
    token_mask: AnyTokenMask = NoTokenMask()
    """Optional mask M of the paper's unified form."""


class GeoToken(Frozen):
    """Clip each token's log-ratio on one side, then take the geometric mean (GMPO, arXiv:2507.20673)."""

    type: Literal["geo_token"] = "geo_token"
    eps_low: float = Field(default=0.4, ge=0, le=20)
    """Lower bound of the log-ratio is -eps_low; nats. 0.4 means ratios above 0.67."""
    eps_high: float = Field(default=0.4, ge=0, le=20)
    """Upper bound of the log-ratio; nats. 0.4 means ratios below 1.49."""


class Sapo(Frozen):
    """A smooth gate sigmoid(tau (r-1)) 4/tau in place of a hard clip (SAPO, arXiv:2511.20347)."""

    type: Literal["sapo"] = "sapo"
    tau_pos: float = Field(default=1.0, gt=0, le=1e3)
    """Sharpness of the gate where A > 0; the gradient weight is 1 at r = 1, less for larger tau."""
    tau_neg: float = Field(default=1.05, gt=0, le=1e3)
    """Sharpness of the gate where A <= 0."""


class DynamicClip(_DualClip):
    """PPO's min with bounds that widen as the old probability q shrinks (DCPO, arXiv:2509.02333)."""

    type: Literal["dynamic"] = "dynamic"
    eps_low: float = Field(default=0.16, ge=0, le=1)
    """Sets the lower bound 0.5 + 0.5 sqrt(max(1 - 4 eps_low / q, 0)); in units of probability."""
    eps_high: float = Field(default=0.2, ge=0, le=1)
    """Sets the upper bound 0.5 + 0.5 sqrt(1 + 4 eps_high / q); in units of probability."""
    r_max: float = Field(default=10.0, ge=1, le=1e6)
    """The upper bound never exceeds this ratio."""


Surrogate = Annotated[
    PpoClip | GeoToken | WeightCap | Sapo | DynamicClip | BookSigned | NoSurrogate,
    Field(discriminator="type"),
]


# ----------------------------------------------------------------------------------------------- correction
class NoCorrection(Frozen):
    """Trust that sampler and trainer agree."""

    type: Literal["none"] = "none"


class TokenTis(Frozen):
    """Weight each token's loss by min(rho, cap), rho = p_old / p_sampler (truncated importance sampling,
    Yao et al. 2025; Olmo 3, arXiv:2512.13961).
    """

    type: Literal["token_tis"] = "token_tis"
    cap: float = Field(default=2.0, gt=0, le=1e6)
    """Largest weight; 1.5 to 5."""


class TokenMask(Frozen):
    """Weight each token by rho where low <= rho <= high and drop it elsewhere (IcePop, arXiv:2510.18855)."""

    type: Literal["token_mask"] = "token_mask"
    low: float = Field(default=0.5, ge=0, le=1)
    """Smallest rho that counts."""
    high: float = Field(default=5.0, ge=1, le=1e6)
    """Largest rho that counts."""


class SequenceTis(Frozen):
    """Weight each completion's loss by its truncated rho (verl's rollout correction)."""

    type: Literal["seq_tis"] = "seq_tis"
    level: Literal["product", "geo"] = "product"
    """rho of a completion: the product of its token rhos (unbiased), or their geometric mean."""
    cap: float = Field(default=2.0, gt=0, le=1e6)
    """Largest weight; 2 to 10."""


class SequenceMask(Frozen):
    """Weight each completion by its rho where low <= rho <= high and drop it elsewhere (TRL: 3)."""

    type: Literal["seq_mask"] = "seq_mask"
    level: Literal["product", "geo"] = "product"
    """rho of a completion: the product of its token rhos, or their geometric mean."""
    low: float = Field(default=0.0, ge=0, le=1)
    """Smallest rho that counts."""
    high: float = Field(default=3.0, ge=1, le=1e6)
    """Largest rho that counts."""


class GeoFilter(Frozen):
    """Keep completions whose geometric mean of rho is in the band; weight their tokens by rho (NeMo-RL)."""

    type: Literal["geo_filter"] = "geo_filter"
    low: float = Field(default=0.999, ge=0, le=1)
    """Smallest geometric mean that counts."""
    high: float = Field(default=1.002, ge=1, le=1e6)
    """Largest geometric mean that counts."""


Correction = Annotated[
    NoCorrection | TokenTis | TokenMask | SequenceTis | SequenceMask | GeoFilter, Field(discriminator="type")
]


# ----------------------------------------------------------------------------- off-policy mask and router
class NoOffPolicyMask(Frozen):
    """Completions count however far the policy has moved from what wrote them."""

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
    """Whose probabilities the completion had: the sampler's (the paper), or those of the trainer's weights at
    the start of the step."""


OffPolicyMask = Annotated[NoOffPolicyMask | Opsm, Field(discriminator="type")]


class NoRouterShift(Frozen):
    """Ratios do not look at the experts."""

    type: Literal["none"] = "none"


class RouterShift(Frozen):
    """Multiply each token's ratio by gamma, which falls as the router moves away from the experts that it
    chose for the token (RSPO, arXiv:2510.23027). A dense policy has gamma 1.
    """

    type: Literal["router_shift"] = "router_shift"
    gamma_min: float = Field(default=0.8, gt=0, le=1)
    """Smallest gamma; 0.8 is taken from other people's code, the paper does not say."""


Router = Annotated[NoRouterShift | RouterShift, Field(discriminator="type")]


# ------------------------------------------------------------------------------------------------------- KL
class NoKl(Frozen):
    """No pull towards a reference; no reference model is loaded."""

    type: Literal["none"] = "none"


class FixedCoefficient(Frozen):
    """The coefficient stays as it is."""

    type: Literal["fixed"] = "fixed"


class DualController(Frozen):
    """Double the coefficient where the KL is above 1.5 targets, halve it where it is below target / 1.5
    (PPO's adaptive penalty, arXiv:1707.06347).
    """

    type: Literal["dual"] = "dual"
    target: float = Field(default=0.01, gt=0, le=1e6)
    """Wanted KL. Nats per token where the KL is a mean; nats per completion where it is a sum (kl.place =
    reward, kl.aggregation = seq_sum, aggregation seq_mean_token_sum). Measured by k3 in the last pass over
    each step's rollouts."""


class HorizonController(Frozen):
    """Multiply the coefficient by 1 + clip(KL / target - 1, -0.2, 0.2) n / horizon after each step's n
    completions (arXiv:1909.08593).
    """

    type: Literal["horizon"] = "horizon"
    target: float = Field(default=0.01, gt=0, le=1e6)
    """Wanted KL. Nats per token where the KL is a mean; nats per completion where it is a sum (kl.place =
    reward, kl.aggregation = seq_sum, aggregation seq_mean_token_sum), as the paper's 6. Measured by k3 in
    the last pass over each step's rollouts."""
    horizon: int = Field(default=10_000, ge=1, le=10**9)
    """Completions over which the coefficient may change by a fifth."""


Controller = Annotated[FixedCoefficient | DualController | HorizonController, Field(discriminator="type")]


def _coef_kind(value: Any) -> str:
    return "by_domain" if isinstance(value, Mapping) else "for_all"


_Coefficient = Annotated[float, Field(ge=0, le=1e3)]
DomainCoefficients = Annotated[dict[str, _Coefficient], Field(min_length=1, max_length=32)]
KlCoefficient = Annotated[
    Annotated[_Coefficient, Tag("for_all")] | Annotated[DomainCoefficients, Tag("by_domain")],
    Discriminator(_coef_kind),
]


class _KlInLoss(Frozen):
    coef: KlCoefficient = 0.04
    """Weight of the KL estimate in the loss, 0 to 1000: a number, or one for each domain of the problems,
    e.g. {"math": 0, "code": 0.01} (DeepSeek-V3.2, arXiv:2512.02556). GRPO 0.04, R1 0.001."""
    controller: Controller = FixedCoefficient()
    """How the coefficient follows the measured KL; coef is what it starts from."""
    to: Literal["reference", "old"] = "reference"
    """Where it pulls to: the frozen reference, or the policy that opened the step (PPO's penalty form)."""
    aggregation: Literal["same_as_loss", "seq_sum"] = "same_as_loss"
    """same_as_loss: reduced as the policy loss; seq_sum: mean over completions of token sums (the book)."""


class KlK3(_KlInLoss):
    """k3 = exp(-x) + x - 1, x = log p - log p_ref: never negative (GRPO, arXiv:2402.03300)."""

    type: Literal["k3"] = "k3"


class KlK2(_KlInLoss):
    """k2 = x^2 / 2: its gradient is the on-policy KL gradient."""

    type: Literal["k2"] = "k2"


class KlK1(_KlInLoss):
    """k1 = x. In the loss its expected on-policy gradient is 0 (noise); in the reward it is right."""

    type: Literal["k1"] = "k1"
    place: Literal["loss", "reward"] = "loss"
    """loss: added to the loss; reward: coef times the token sum is taken off each completion's reward."""


class KlRatioK3(_KlInLoss):
    """r k3, whose gradient r x is unbiased off-policy too (DeepSeek-V3.2, arXiv:2512.02556)."""

    type: Literal["r_k3"] = "r_k3"


class KlRatioK1(_KlInLoss):
    """r k1 with the gradient through r (the book's V3.2 script)."""

    type: Literal["r_k1"] = "r_k1"


Kl = Annotated[NoKl | KlK3 | KlK2 | KlK1 | KlRatioK3 | KlRatioK1, Field(discriminator="type")]


# ------------------------------------------------------------------------------------------------ reference
class FixedReference(Frozen):
    """The reference stays the policy as it was loaded."""

    type: Literal["fixed"] = "fixed"


class EveryN(Frozen):
    """The reference becomes the present policy every n steps (DeepSeek-R1, arXiv:2501.12948)."""

    type: Literal["every_n"] = "every_n"
    n: int = Field(default=400, ge=1, le=10**7)
    """Steps between replacements; R1 400, ProRL v2 200 to 500."""
    reset_optimizer: bool = False
    """Whether the optimizer's moments begin anew at each replacement."""


class OnStagnation(Frozen):
    """The reference becomes the present policy when held-out accuracy no longer improves (ProRL,
    arXiv:2505.24864).
    """

    type: Literal["on_stagnation"] = "on_stagnation"
    patience: int = Field(default=5, ge=1, le=10_000)
    """Evaluations in a row without a better accuracy than any since the last replacement; the paper gives no
    number."""
    reset_optimizer: bool = True
    """Whether the optimizer's moments begin anew at each replacement; ProRL does, v2 does not."""


class EmaReference(Frozen):
    """Every n steps the reference moves a share of the way to the policy (TR-DPO, arXiv:2404.09656)."""

    type: Literal["ema"] = "ema"
    alpha: float = Field(default=0.6, gt=0, le=1)
    """The share: reference <- alpha policy + (1 - alpha) reference; TR-DPO 0.6."""
    n: int = Field(default=512, ge=1, le=10**7)
    """Steps between moves; TRL 512."""


Reference = Annotated[FixedReference | EveryN | OnStagnation | EmaReference, Field(discriminator="type")]


# ---------------------------------------------------------------------------------------------- aggregation
class SeqMeanTokenMean(Frozen):
    """Mean over completions of the mean over their tokens: long answers weigh less per token (GRPO)."""

    type: Literal["seq_mean_token_mean"] = "seq_mean_token_mean"


class TokenMean(Frozen):
    """Mean over all tokens of the optimizer batch (DAPO, arXiv:2503.14476)."""

    type: Literal["token_mean"] = "token_mean"


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


# ---------------------------------------------------------------------------------- entropy and token weight
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
    """How much the weight changes after a step; loss per nat. Paper 0.005."""
    coef: float = Field(default=0.0, ge=0, le=1e3)
    """The weight that the run starts with; it never falls below 0."""


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


class NoTokenWeight(Frozen):
    """Every token of a completion carries the same advantage."""

    type: Literal["none"] = "none"


class AdvantageReweighting(Frozen):
    """Multiply A by alpha p_old + 1 - alpha: rare tokens move the policy less (AR, arXiv:2505.12929)."""

    type: Literal["ar"] = "ar"
    alpha: float = Field(default=0.3, ge=0, le=1)
    """0: no reweighting; 1: proportional to the token's old probability."""


class Lopti(Frozen):
    """Two updates for each batch: rare tokens first, then, under the weights that this gave, the others, so
    that rare tokens are not drowned (low-probability token isolation, arXiv:2505.12929).

    Both keep the whole batch's divisor, and KL and entropy act on the tokens of the update alone. The
    learning-rate schedule counts steps, not updates.
    """

    type: Literal["lopti"] = "lopti"
    eta: float = Field(default=0.5, ge=-1, le=1)
    """Tokens with an old probability below this are the rare ones; a negative value trains the others first.
    Paper 0.5; not 0."""

    @field_validator("eta")
    @classmethod
    def _splits(cls, eta: float) -> float:
        if eta == 0:
            raise ValueError(
                "0 leaves no rare tokens: 0 < eta <= 1 is expected, or below 0 to train them last"
            )
        return eta


class TopEntropy(Frozen):
    """Keep the policy loss on the tokens at which the sampler was most uncertain (arXiv:2506.01939)."""

    type: Literal["top_entropy"] = "top_entropy"
    q: float = Field(default=0.2, gt=0, le=1)
    """Share of the step's tokens that is kept; paper 0.2. The others still count in the divisor."""


TokenWeight = Annotated[
    NoTokenWeight | AdvantageReweighting | Lopti | TopEntropy, Field(discriminator="type")
]
