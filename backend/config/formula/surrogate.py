"""Formulas of the surrogate and of the KL estimate."""

import math
from typing import assert_never

from backend.config import knobs
from backend.config.formula.notation import fraction, number
from backend.config.formula.symbols import (
    MAX_LOG_RATIO,
    POLICY,
    advantage_symbol,
    limited_logarithm,
    log_probability_ratio,
    ratio_symbol,
)
from backend.config.objective import Objective

_TINY = number(1e-8)


def surrogate_term(objective: Objective) -> str:
    """Return the surrogate term, which is averaged over tokens or completions."""
    advantage, ratio, rule = advantage_symbol(objective), ratio_symbol(objective), objective.surrogate
    product = f"{ratio} {advantage}"
    match rule:
        case knobs.NoSurrogate():
            return f"{advantage} (log {POLICY})" if objective.ratio.type == "none" else product
        case knobs.PpoClip():
            return _pessimistic(objective, _clipped_ratio(ratio, rule.eps_low, rule.eps_high), rule.dual_clip)
        case knobs.BookSigned():
            return f"min({ratio}, {number(1 + rule.eps_high)}) {advantage}"
        case knobs.WeightCap():
            mask = "mᵢₜ " if rule.token_mask.type == "ppo" else ""
            return f"{mask}sg[min({ratio}, {number(rule.cap)})] {advantage} log {POLICY}"
        case knobs.DivergenceMask():
            return f"mᵢₜ sg[min({ratio}, {number(rule.cap)})] {advantage} log {POLICY}"
        case knobs.GeoToken():
            return product
        case knobs.Sapo():
            return f"4/τ σ(τ ({ratio} − 1)) {advantage}"
        case knobs.ClipCov():
            return f"mᵢₜ {_pessimistic(objective, _clipped_ratio(ratio, rule.eps_low, rule.eps_high), 0)}"
        case knobs.Fipo():
            clipped_ratio = _clipped_ratio(ratio, rule.eps_low, rule.eps_high)
            return f"sg[fᵢₜ] {_pessimistic(objective, clipped_ratio, rule.dual_clip)}"
        case knobs.KlCov():
            return f"{product} − {number(rule.coef)} uᵢₜ |log {ratio}|"
        case knobs.Vespo():
            return f"sg[φᵢ] {advantage} log {POLICY}"
        case knobs.DynamicClip():
            return _pessimistic(objective, f"clip({ratio}, lᵢₜ, hᵢₜ)", rule.dual_clip)
        case _:
            assert_never(rule)


def _clipped_ratio(ratio: str, eps_low: float, eps_high: float) -> str:
    return f"clip({ratio}, {number(1 - eps_low)}, {number(1 + eps_high)})"


def _pessimistic(objective: Objective, clipped_ratio: str, dual_clip: float) -> str:
    advantage = advantage_symbol(objective)
    smaller_term = f"min({ratio_symbol(objective)} {advantage}, {clipped_ratio} {advantage})"
    return f"max({smaller_term}, min({number(dual_clip)} {advantage}, 0))" if dual_clip else smaller_term


def surrogate_definitions(objective: Objective) -> list[str]:
    """Return the definitions of the gates, bounds and masks of the surrogate."""
    ratio, advantage, rule = ratio_symbol(objective), advantage_symbol(objective), objective.surrogate
    match rule:
        case knobs.Sapo():
            return [f"τ = {number(rule.tau_pos)} where {advantage} > 0, else {number(rule.tau_neg)}"]
        case knobs.DynamicClip():
            low, high = (fraction(number(4 * eps), "π_old(oᵢₜ)") for eps in (rule.eps_low, rule.eps_high))
            return [
                f"lᵢₜ = 0.5 + 0.5 √max(1 − {low}, 0)",
                f"hᵢₜ = min(0.5 + 0.5 √(1 + {high}), {number(rule.r_max)})",
            ]
        case knobs.WeightCap(token_mask=knobs.PpoTokenMask() as mask):
            upper_condition = f"{advantage} > 0 and {ratio} > {number(1 + mask.eps_high)}"
            lower_condition = f"{advantage} < 0 and {ratio} < {number(1 - mask.eps_low)}"
            return [f"mᵢₜ = 0 where {upper_condition} or {lower_condition}, else 1"]
        case knobs.ClipCov():
            share = f"a share {number(rule.share)} of the tokens, at least one"
            band = f"{number(rule.low)} < covᵢₜ < {number(rule.high)}"
            return [f"mᵢₜ = 0 for {share}, drawn where {band}, else 1", _covariance(advantage)]
        case knobs.Fipo():
            return _influence(rule, ratio, advantage)
        case knobs.KlCov():
            share = f"a share {number(rule.share)} of the tokens, at least one"
            return [f"uᵢₜ = 1 for {share}, that of highest covᵢₜ, else 0", _covariance(advantage)]
        case knobs.Vespo():
            positive, negative = _gamma(rule.k_pos, rule.lambda_pos), _gamma(rule.k_neg, rule.lambda_neg)
            return [
                f"φᵢ = {positive} where {advantage} ≥ 0, else {negative}",
                f"ωᵢ = max({ratio}, {_TINY})",
            ]
        case knobs.DivergenceMask():
            return _divergence(rule, objective, advantage)
        case (
            knobs.NoSurrogate() | knobs.PpoClip() | knobs.BookSigned() | knobs.WeightCap() | knobs.GeoToken()
        ):
            return []
        case _:
            assert_never(rule)


def _covariance(advantage: str) -> str:
    """Return the contribution of a token to the covariance of log-probability and advantage."""
    old_logprob = "log π_old(oᵢₜ)"
    return f"covᵢₜ = ({old_logprob} − mean({old_logprob})) ({advantage} − mean({advantage}))"


def _influence(rule: knobs.Fipo, ratio: str, advantage: str) -> list[str]:
    """Return the definitions of FIPO's token weight, which depends on the ratios of later tokens."""
    decay = number(round(2 ** (-1 / rule.half_life), 12))
    clipped_weight = f"clip(exp(Fᵢₜ), {number(rule.low)}, {number(rule.high)})"
    condition = f" without those above {number(rule.dual_clip)}" if rule.dual_clip else ""
    return [
        f"fᵢₜ = {clipped_weight}",
        f"fᵢₜ = clip({clipped_weight}, 0.8, 1) where {advantage} < 0 and {ratio} > {number(rule.safety)}",
        f"Fᵢₜ = ∑ₖ {decay}ᵏ log r_i,t+k{condition}",
    ]


def _gamma(k: float, rate: float) -> str:
    return f"exp({number(k)} log ωᵢ + {number(rate)} (1 − ωᵢ))"


def _divergence(rule: knobs.DivergenceMask, objective: Objective, advantage: str) -> list[str]:
    """Return the definitions of the divergence mask and of the divergence."""
    upper_condition = f"{advantage} > 0, pᵢₜ > q′ᵢₜ and Dᵢₜ > {number(rule.high)}"
    lower_condition = f"{advantage} < 0, pᵢₜ < q′ᵢₜ and Dᵢₜ > {number(rule.low)}"
    if rule.measure == "tv":
        difference = "|pᵢₜ − q′ᵢₜ|"
    else:
        odds = f"(1 − q′ᵢₜ + {_TINY}) / (1 − pᵢₜ + {_TINY})"
        difference = f"q′ᵢₜ log (q′ᵢₜ/pᵢₜ) + (1 − q′ᵢₜ) log ({odds})"
    return [
        f"mᵢₜ = 0 where {upper_condition} or {lower_condition}, else 1",
        f"Dᵢₜ = {difference}",
        f"pᵢₜ = {POLICY}",
        f"q′ᵢₜ = {_denominator(objective)}",
    ]


def _denominator(objective: Objective) -> str:
    """Return the denominator of the ratio."""
    match getattr(objective.ratio, "old", "recompute"):
        case "sampler":
            return "π_sampler(oᵢₜ)"
        case "current":
            return f"sg[{POLICY}]"
        case _:
            return "π_old(oᵢₜ)"


def kl_definitions(objective: Objective) -> list[str]:
    """Return the definitions of the KL estimate, or none if the KL is not in the loss."""
    kl = objective.kl
    if isinstance(kl, knobs.NoKl) or objective.kl_in_reward:
        return []
    distance = f"xᵢₜ = {log_probability_ratio('π', 'π_old' if kl.to == 'old' else 'π_ref')}"
    match kl:
        case knobs.KlK1():
            return [f"kᵢₜ = {limited_logarithm('xᵢₜ')}", distance]
        case knobs.KlK2():
            return [f"kᵢₜ = 1/2 {limited_logarithm('xᵢₜ')}²", distance]
        case knobs.KlK3():
            return [*_k3("kᵢₜ", kl.largest_k3), distance]
        case knobs.KlRatioK3():
            return [f"kᵢₜ = {ratio_symbol(objective)} κᵢₜ", *_k3("κᵢₜ", kl.largest_k3), distance]
        case knobs.KlRatioK1():
            return [f"kᵢₜ = {ratio_symbol(objective)} {limited_logarithm('xᵢₜ')}", distance]
        case _:
            assert_never(kl)


def _k3(name: str, largest: float) -> list[str]:
    """Return the definition of k3, and of its tangent beyond the limit, where exp would overflow."""
    rows = [f"{name} = {_at_most('exp(−xᵢₜ) + xᵢₜ − 1', largest)}"]
    if largest <= math.expm1(MAX_LOG_RATIO) - MAX_LOG_RATIO:
        return rows
    tangent = (
        f"exp({MAX_LOG_RATIO}) − {MAX_LOG_RATIO + 1} + (exp({MAX_LOG_RATIO}) − 1) (−{MAX_LOG_RATIO} − xᵢₜ)"
    )
    return [*rows, f"{name} = {_at_most(tangent, largest)} where xᵢₜ < −{MAX_LOG_RATIO}"]


def _at_most(value: str, largest: float) -> str:
    return value if math.isinf(largest) else f"min({value}, {number(largest)})"


MEANINGS = {
    "σ": "the logistic function 1 / (1 + exp(−a))",
    "lᵢₜ": "lower bound of the ratio",
    "hᵢₜ": "upper bound of the ratio",
    "mᵢₜ": "0 for tokens that are excluded from the gradient",
    "uᵢₜ": "1 for a token that is held back",
    "covᵢₜ": "what a token adds to the covariance of log-probability and advantage over the optimizer step",
    "fᵢₜ": "weight of a token, computed from the ratios of later tokens",
    "Fᵢₜ": "log-ratio of the token and those after it, discounted by distance; nats",
    "r_i,t+k": "the ratio k tokens later; 1 after the last token",
    "φᵢ": "weight of a completion: 1 where the policy has not moved, small where it has moved far",
    "ωᵢ": "the ratio, bounded away from 0",
    "Dᵢₜ": "distance of the two policies at a token, over two outcomes: the token is sampled or not",
    "pᵢₜ": "probability of a token under the policy that is trained",
    "q′ᵢₜ": "probability of the token under the policy in the denominator of the ratio",
    "τ": "sharpness of the gate",
    "kᵢₜ": "estimate of the KL divergence at a token; nats",
    "κᵢₜ": "k3, an estimate of the KL divergence that is never negative; nats",
    "xᵢₜ": "log of the ratio of the two probabilities that the KL compares; nats",
}
"""Meanings of the symbols that this module writes."""
