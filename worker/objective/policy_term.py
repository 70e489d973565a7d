"""Compute the policy term of a loss from the ratio and surrogate knobs."""

from typing import assert_never

from jaxtyping import Bool, Float
from torch import Tensor

from backend.config import knobs
from backend.config.objective import Objective
from worker.objective import ratios, surrogates
from worker.objective.batch import PolicyBatch, require
from worker.objective.off_policy_masks import RouterGate
from worker.objective.surrogates import Surrogate


def policy_surrogate(
    policy: Float[Tensor, "B T"],
    old_logprobs: Float[Tensor, "B T"],
    token_advantages: Float[Tensor, "B N"],
    batch: PolicyBatch,
    objective: Objective,
    gate: RouterGate | None,
) -> Surrogate:
    """Return the per-token objective that the ratio and surrogate of a run compute from its advantages."""
    if isinstance(objective.ratio, knobs.NoRatio):
        return surrogates.log_likelihood(policy, token_advantages)
    log_ratio = ratios.token_log_ratio(policy, old_logprobs)
    log_ratio = log_ratio if gate is None else log_ratio + gate.log_gamma
    rule = objective.surrogate
    if isinstance(rule, knobs.GeoToken):
        return surrogates.geo_token(
            log_ratio, token_advantages, batch.mask, eps_low=rule.eps_low, eps_high=rule.eps_high
        )
    ratio = _ratio(log_ratio, batch.mask, objective.ratio)
    match rule:
        case knobs.NoSurrogate():
            return surrogates.unclipped_surrogate(ratio, token_advantages)
        case knobs.PpoClip(eps_low=low, eps_high=high, dual_clip=dual_clip):
            return surrogates.ppo_clip(
                ratio, token_advantages, eps_low=low, eps_high=high, dual_clip=dual_clip
            )
        case knobs.BookSigned(eps_high=high):
            return surrogates.book_signed_surrogate(ratio, token_advantages, eps_high=high)
        case knobs.WeightCap(cap=cap, token_mask=token_mask):
            capped = surrogates.weight_cap(policy, ratio, token_advantages, cap=cap)
            return _mask_surrogate(capped, token_advantages, token_mask)
        case knobs.Sapo(tau_pos=pos, tau_neg=neg):
            return surrogates.sapo(ratio, token_advantages, tau_pos=pos, tau_neg=neg)
        case knobs.DynamicClip(eps_low=low, eps_high=high, r_max=r_max, dual_clip=dual_clip):
            bounds = surrogates.dynamic_bounds(old_logprobs, eps_low=low, eps_high=high, r_max=r_max)
            return surrogates.bounded_surrogate(ratio, token_advantages, bounds, dual_clip=dual_clip)
        case knobs.DivergenceMask(low=low, high=high, measure=measure, cap=cap):
            bounds = surrogates.Bounds(low, high)
            return surrogates.divergence_mask(
                policy, old_logprobs, token_advantages, ratio, bounds, measure=measure, cap=cap
            )
        case knobs.ClipCov(eps_low=low, eps_high=high):
            clipped = surrogates.ppo_clip(ratio, token_advantages, eps_low=low, eps_high=high)
            return surrogates.silence_tokens(clipped, require(batch.covariant, "tokens chosen by covariance"))
        case knobs.KlCov(coef=coef):
            selected_tokens = require(batch.covariant, "tokens chosen by covariance")
            return surrogates.penalised_surrogate(log_ratio, token_advantages, selected_tokens, coef=coef)
        case knobs.Fipo(eps_low=low, eps_high=high, dual_clip=dual_clip):
            clipped = surrogates.ppo_clip(
                ratio, token_advantages, eps_low=low, eps_high=high, dual_clip=dual_clip
            )
            return surrogates.influence_weighted_surrogate(
                clipped,
                log_ratio,
                token_advantages,
                half_life=rule.half_life,
                weights=surrogates.Band(rule.low, rule.high),
                safety=rule.safety,
                dual_clip=dual_clip,
            )
        case knobs.Vespo():
            positive = surrogates.GammaShape(rule.k_pos, rule.lambda_pos)
            negative = surrogates.GammaShape(rule.k_neg, rule.lambda_neg)
            return surrogates.vespo(policy, ratio, token_advantages, positive=positive, negative=negative)
        case _:
            assert_never(rule)


def _ratio(
    log_ratio: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], ratio: knobs.Ratio
) -> Float[Tensor, "B N"]:
    match ratio:
        case knobs.TokenRatio() | knobs.NoRatio():
            return log_ratio.exp()
        case knobs.SequenceGeometricRatio():
            return ratios.sequence_geometric(log_ratio, mask).exp()
        case knobs.SequenceGeometricTokenRatio():
            return ratios.sequence_geometric_token(log_ratio, mask).exp()
        case knobs.SequenceProductRatio():
            return ratios.sequence_product(log_ratio).exp()
        case _:
            assert_never(ratio)


def _mask_surrogate(
    capped_surrogate: Surrogate,
    token_advantages: Float[Tensor, "B N"],
    token_mask: knobs.NoTokenMask | knobs.PpoTokenMask,
) -> Surrogate:
    if isinstance(token_mask, knobs.NoTokenMask) or capped_surrogate.ratio is None:
        return capped_surrogate
    keep_mask = surrogates.ppo_token_mask(
        capped_surrogate.ratio, token_advantages, eps_low=token_mask.eps_low, eps_high=token_mask.eps_high
    )
    return capped_surrogate._replace(objective=capped_surrogate.objective * keep_mask)
