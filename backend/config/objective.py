"""The training objective, with one value for each knob. Contradictory combinations are refused.

The rules follow from the published algorithms. Each error belongs to the field that must change and explains
why.
"""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationInfo, field_validator

from backend.config import knobs
from backend.config.base import Frozen, combination_error


class Objective(Frozen):
    """The loss of a run, composed of independent knobs.

    Example: Objective(surrogate=knobs.PpoClip(eps_high=0.28), aggregation=knobs.TokenMean()) is DAPO's loss.
    """

    advantage: knobs.Advantage = knobs.GroupMean()
    """Computation of advantages from rewards. `type` is the baseline that is subtracted."""
    value: knobs.Value = knobs.Value()
    """Training of the critic, if the advantage uses a critic."""
    ratio: knobs.Ratio = knobs.TokenRatio()
    """Probability ratio between the current policy and the policy that sampled the completions."""
    surrogate: knobs.Surrogate = knobs.PpoClip()
    """Limit on the change of the policy by a single ratio."""
    correction: knobs.Correction = knobs.NoCorrection()
    """Weights that correct the mismatch between the probabilities of the sampler and of the trainer."""
    off_policy_mask: knobs.OffPolicyMask = knobs.NoOffPolicyMask()
    """Mask for completions from which the current policy has moved too far away."""
    router: knobs.Router = knobs.NoRouterShift()
    """Effect of changed router probabilities of a mixture of experts on the ratios."""
    kl: knobs.Kl = knobs.NoKl()
    """KL penalty that pulls the policy towards the reference policy."""
    reference: knobs.Reference = knobs.FixedReference()
    """Replacement of the reference policy, after which the KL is 0."""
    aggregation: knobs.Aggregation = knobs.SeqMeanTokenMean()
    """Aggregation of the losses of all tokens to one number."""
    entropy: knobs.Entropy = knobs.NoEntropyBonus()
    """Bonus for the entropy of the next-token distribution."""
    nll: knobs.Nll = knobs.NoNll()
    """Imitation loss on correct completions of the policy."""
    token_weight: knobs.TokenWeight = knobs.NoTokenWeight()
    """Weights with which the advantage differs between the tokens of a completion."""

    @field_validator("ratio")
    @classmethod
    def _token_advantages_have_token_ratios(cls, ratio: knobs.Ratio, info: ValidationInfo) -> knobs.Ratio:
        advantage = info.data.get("advantage")
        if advantage is not None and advantage.judges_tokens and ratio.is_shared:
            kind = f"advantage {advantage.type} judges each token: "
            reason = f"is {ratio.type}, one gradient for all tokens, but {kind}"
            raise combination_error([("type", reason + "expected token or seq_geo_token")])
        return ratio

    @field_validator("surrogate")
    @classmethod
    def _surrogate_fits_ratio(cls, surrogate: knobs.Surrogate, info: ValidationInfo) -> knobs.Surrogate:
        ratio = _type(info, "ratio")
        if ratio and ratio not in surrogate.ratios:
            raise combination_error([("type", _surrogate_reason(surrogate, ratio))])
        dual_clip = getattr(surrogate, "dual_clip", 0)
        if 0 < dual_clip <= 1:
            reason = f"is {dual_clip:g}, but it caps ratios from above: expected 0 (off) or more than 1"
            raise combination_error([("dual_clip", reason)])
        return surrogate

    @field_validator("correction")
    @classmethod
    def _mismatch_is_corrected_once(
        cls, correction: knobs.Correction, info: ValidationInfo
    ) -> knobs.Correction:
        if correction.type != "none" and getattr(info.data.get("ratio"), "old", "") == "sampler":
            reason = f"is {correction.type}, but ratio.old = sampler already contains the mismatch: "
            raise combination_error([("type", reason + "expected none, or ratio.old = recompute")])
        return correction

    @field_validator("router")
    @classmethod
    def _router_has_its_ratio(cls, router: knobs.Router, info: ValidationInfo) -> knobs.Router:
        if router.type != "none" and _type(info, "ratio") == "none":
            reason = "is router_shift, which multiplies the policy ratio, but ratio is none: "
            raise combination_error([("type", reason + "expected none, or another ratio")])
        return router

    @field_validator("kl")
    @classmethod
    def _kl_has_its_ratio(cls, kl: knobs.Kl, info: ValidationInfo) -> knobs.Kl:
        if kl.type in {"r_k3", "r_k1"} and _type(info, "ratio") == "none":
            reason = f"is {kl.type}, which multiplies by the policy ratio, but ratio is none: "
            raise combination_error([("type", reason + "expected k3, k2 or k1")])
        return kl

    @field_validator("kl")
    @classmethod
    def _kl_is_no_reward_term_of_its_own(cls, kl: knobs.Kl, info: ValidationInfo) -> knobs.Kl:
        is_decoupled = getattr(info.data.get("advantage"), "multi_reward", "sum") == "gdpo"
        if is_decoupled and isinstance(kl, knobs.KlK1) and kl.place == "reward":
            reason = "is reward, but advantage.multi_reward = gdpo normalises each reward term apart, "
            raise combination_error([("place", reason + "and the KL is none of them: expected loss")])
        return kl

    @field_validator("kl")
    @classmethod
    def _kl_can_act(cls, kl: knobs.Kl) -> knobs.Kl:
        if isinstance(kl, knobs.NoKl):
            return kl
        if kl.to == "old" and isinstance(kl, knobs.KlK1) and kl.place == "reward":
            reason = (
                "is old, but KL in the reward compares with the old policy itself: it would always be 0; "
            )
            raise combination_error([("to", reason + "expected reference, or place = loss")])
        if kl.to == "old" and isinstance(kl, knobs.KlK1):
            reason = (
                "is k1, but the completions come from the old policy: their mean of k1 is minus the KL, so "
                "the penalty would push away; expected r_k3, r_k1, k3 or k2 with kl.to = old"
            )
            raise combination_error([("type", reason)])
        weights = kl.coef.values() if isinstance(kl.coef, Mapping) else [kl.coef]
        if kl.controller.type != "fixed" and not any(weights):
            reason = f"is 0, and the {kl.controller.type} controller only multiplies it: must be above 0"
            raise combination_error([("coef", reason)])
        return kl

    @field_validator("token_weight")
    @classmethod
    def _token_advantages_keep_their_gradient(
        cls, token_weight: knobs.TokenWeight, info: ValidationInfo
    ) -> knobs.TokenWeight:
        ratio = info.data.get("ratio")
        if token_weight.type != "none" and ratio is not None and ratio.is_shared:
            reason = f"is {token_weight.type}, which gives tokens their own advantages, but "
            explanation = (
                f"ratio {ratio.type} has one gradient for all: expected ratio token or seq_geo_token"
            )
            raise combination_error([("type", reason + explanation)])
        return token_weight

    @property
    def needs_reference(self) -> bool:
        """Whether a reference model has to be loaded."""
        return not isinstance(self.kl, knobs.NoKl) and self.kl.to == "reference"

    @property
    def largest_k3(self) -> float:
        """Maximum k3 of one token, in nats, or infinity if it is not limited."""
        return math.inf if isinstance(self.kl, knobs.NoKl) else self.kl.largest_k3

    @property
    def critic(self) -> knobs.Critic | None:
        """The advantage if a critic estimates it, or None."""
        return self.advantage if isinstance(self.advantage, knobs.Critic) else None

    @property
    def needs_entropy_gradient(self) -> bool:
        """Whether the entropy of the current policy enters the loss."""
        return self.entropy.type != "none"

    @property
    def kl_in_reward(self) -> bool:
        """Whether the KL penalty is subtracted from the rewards before advantages are computed."""
        return isinstance(self.kl, knobs.KlK1) and self.kl.place == "reward"

    @property
    def kl_is_sum(self) -> bool:
        """Whether the KL is summed over the tokens of a completion, so that
        targets are in nats per completion.
        """
        if isinstance(self.kl, knobs.NoKl):
            return False
        is_sum = self.kl.aggregation == "seq_sum" or self.aggregation.type == "seq_mean_token_sum"
        return is_sum or self.kl_in_reward

    def warnings(self) -> list[str]:
        """Return warnings about combinations that are valid but probably not intended."""
        return [reason for applies, reason in _cautions(self) if applies]


def _type(info: ValidationInfo, field: str) -> str:
    """Return the `type` of an earlier field, or "" if that field was refused."""
    return getattr(info.data.get(field), "type", "")


def _surrogate_reason(surrogate: knobs.Surrogate, ratio: str) -> str:
    allowed_ratios = " or ".join(sorted(surrogate.ratios))
    return (
        f"is {surrogate.type}, which {surrogate.acts}, but ratio is {ratio}: expected ratio {allowed_ratios}"
    )


def _cautions(objective: Objective) -> list[tuple[bool, str]]:
    ratio: Any = objective.ratio
    surrogate: Any = objective.surrogate
    old_policy = getattr(ratio, "old", "")
    bounds = [getattr(surrogate, name, 0) for name in ("eps_low", "eps_high")]
    is_wide = surrogate.type in {"ppo_clip", "book_signed"} and max(bounds) > 0.05
    return [
        (
            ratio.type in {"seq_geo", "seq_geo_token"} and is_wide,
            "a sequence ratio with a clip wider than 0.05 never clips at usual steps; GSPO uses 3e-4 / 4e-4",
        ),
        (
            surrogate.type == "weight_cap" and surrogate.cap <= 1,
            "a weight cap at or below 1 biases every token's gradient; use 1.28 to 5",
        ),
        (
            objective.kl.type == "k1" and not objective.kl_in_reward,
            "k1 in the loss has zero expected on-policy gradient: it adds noise; use k3, k2 or r_k3",
        ),
        (
            objective.kl.type == "r_k3" and old_policy == "current",
            "with ratio.old = current the ratio is 1, so r_k3 has k2's gradient",
        ),
        (
            ratio.type == "seq_product",
            "a product of token ratios explodes or vanishes with length; watch ratio/max",
        ),
    ]
