"""Formulas of the probability ratio and of the correction for a different sampler."""

from typing import assert_never

from backend.config import knobs
from backend.config.formula.notation import number
from backend.config.formula.symbols import POLICY, advantage_symbol, limited_ratio
from backend.config.objective import Objective


def ratio_definitions(objective: Objective) -> list[str]:
    """Return the definitions of the ratio r, or none without a ratio."""
    ratio = objective.ratio
    if isinstance(ratio, knobs.NoRatio):
        return []
    token = _token_ratio(objective, ratio.old)
    token_definition = f"qᵢₜ = {token}"
    if isinstance(objective.surrogate, knobs.GeoToken):
        return [*_geo_token(objective, objective.surrogate), token_definition]
    mean = _geometric_mean("log qᵢₜ")
    match ratio:
        case knobs.TokenRatio():
            return [f"rᵢₜ = {token}"]
        case knobs.SequenceGeometricRatio():
            return [f"rᵢ = {mean}", token_definition]
        case knobs.SequenceGeometricTokenRatio():
            return [f"rᵢₜ = sg[{mean}] (qᵢₜ/sg[qᵢₜ])", token_definition]
        case knobs.SequenceProductRatio():
            return [f"rᵢ = {limited_ratio('∏ₜ qᵢₜ')}", token_definition]
        case _:
            assert_never(ratio)


def _token_ratio(objective: Objective, old_policy: str) -> str:
    """Return the limited ratio of a token, multiplied by the router's gate if there is one."""
    is_routed = objective.router.type != "none"
    match old_policy:
        case "current":
            ratio = f"{POLICY} / sg[{POLICY}]"
            return f"gᵢₜ ({ratio})" if is_routed else ratio
        case "sampler":
            ratio = limited_ratio(f"{POLICY} / π_sampler(oᵢₜ)")
        case _:
            ratio = limited_ratio(f"{POLICY} / π_old(oᵢₜ)")
    return f"gᵢₜ {ratio}" if is_routed else ratio


def _geometric_mean(log_ratio: str) -> str:
    return f"exp(1/|oᵢ| ∑ₜ {log_ratio})"


def _geo_token(objective: Objective, rule: knobs.GeoToken) -> list[str]:
    high, low = f"min(dᵢₜ, {number(rule.eps_high)})", f"max(dᵢₜ, {number(-rule.eps_low)})"
    return [
        f"rᵢ = {_geometric_mean('d′ᵢₜ')}",
        f"d′ᵢₜ = {high} where {advantage_symbol(objective)} > 0, else {low}",
        "dᵢₜ = log qᵢₜ",
    ]


def correction_definitions(correction: knobs.Correction) -> list[str]:
    definition = f"ρᵢₜ = {limited_ratio('π_old(oᵢₜ) / π_sampler(oᵢₜ)')}"
    match correction:
        case knobs.NoCorrection():
            return []
        case knobs.TokenTis():
            return [f"wᵢₜ = min(ρᵢₜ, {number(correction.cap)})", definition]
        case knobs.TokenMask():
            return [f"wᵢₜ = ρᵢₜ {_format_mask('ρᵢₜ', correction)}", definition]
        case knobs.SequenceTis():
            return [f"wᵢ = min(ρᵢ, {number(correction.cap)})", _sequence_rho(correction.level), definition]
        case knobs.SequenceMask():
            return [f"wᵢ = ρᵢ {_format_mask('ρᵢ', correction)}", _sequence_rho(correction.level), definition]
        case knobs.SequenceK3():
            weight = f"wᵢ = 1 where κᵢ ≤ {number(correction.threshold)}, else 0"
            return [weight, "κᵢ = 1/|oᵢ| ∑ₜ (ρᵢₜ − 1 − log ρᵢₜ)", definition]
        case knobs.GeoFilter():
            return [f"wᵢₜ = ρᵢₜ {_format_mask('ρᵢ', correction)}", _sequence_rho("geo"), definition]
        case _:
            assert_never(correction)


def _format_mask(quantity: str, bounds: knobs.TokenMask | knobs.SequenceMask | knobs.GeoFilter) -> str:
    return f"where {number(bounds.low)} ≤ {quantity} ≤ {number(bounds.high)}, else 0"


def _sequence_rho(level: str) -> str:
    if level == "product":
        return f"ρᵢ = {limited_ratio('∏ₜ ρᵢₜ')}"
    return f"ρᵢ = {_geometric_mean('log ρᵢₜ')}"


MEANINGS = {
    "rᵢₜ": "ratio of new to old probability of a token",
    "rᵢ": "ratio of new to old probability of a completion, the same for all its tokens",
    "qᵢₜ": "ratio of new to old probability of a token",
    "dᵢₜ": "logarithm of the ratio; nats",
    "d′ᵢₜ": "the same, limited in the direction in which the advantage moves it; nats",
    "wᵢₜ": "weight of a token against the mismatch of sampler and trainer, a constant",
    "wᵢ": "weight of a completion against the mismatch of sampler and trainer, a constant",
    "ρᵢₜ": "trainer's old probability of a token over the sampler's",
    "ρᵢ": "the same of a whole completion",
    "κᵢ": "distance of trainer and sampler: mean over a completion's tokens of k3; nats per token",
}
"""Meanings of the symbols that this module writes."""
