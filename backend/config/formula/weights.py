"""Formulas of weights that differ between completions or adapt to measurements."""

from collections.abc import Mapping
from typing import assert_never

from backend.config import knobs
from backend.config.formula.notation import fraction, mark_word, number
from backend.config.formula.symbols import log_probability_ratio
from backend.config.objective import Objective

AnyKl = knobs.KlK1 | knobs.KlK2 | knobs.KlK3 | knobs.KlRatioK1 | knobs.KlRatioK3


def kl_weight(kl: AnyKl) -> str:
    """Return the weight of the KL as a number, or β if it is not a constant."""
    if isinstance(kl.coef, Mapping):
        return "βᵢ"
    return number(kl.coef) if kl.controller.type == "fixed" else "β"


def kl_weight_definition(kl: knobs.Kl) -> list[str]:
    """Return the definitions of β and of its changes."""
    if isinstance(kl, knobs.NoKl):
        return []
    by_domain = isinstance(kl.coef, Mapping)
    if not by_domain and kl.controller.type == "fixed":
        return []
    return [*_start(kl), *_course(kl.controller, "βᵢ" if by_domain else "β")]


def _start(kl: AnyKl) -> list[str]:
    suffix = "" if kl.controller.type == "fixed" else " at first"
    if not isinstance(kl.coef, Mapping):
        return [f"β = {number(kl.coef)}{suffix}"]
    return [f"βᵢ = {number(coef)} for {mark_word(domain)}{suffix}" for domain, coef in kl.coef.items()]


def _course(controller: knobs.Controller, weight: str) -> list[str]:
    match controller:
        case knobs.FixedCoefficient():
            return []
        case knobs.DualController(target=target):
            return [
                f"{weight} ← 2 {weight} where KL > {number(round(1.5 * target, 12))}",
                f"{weight} ← {weight}/2 where KL < {number(target / 1.5)}",
            ]
        case knobs.HorizonController(target=target, horizon=horizon):
            clipped_error = f"clip({fraction('KL', number(target))} − 1, −0.2, 0.2)"
            return [f"{weight} ← {weight} (1 + {clipped_error} {fraction('B_step', number(horizon))})"]
        case _:
            assert_never(controller)


def reference_definition(objective: Objective) -> list[str]:
    """Return the rule that updates π_ref, or none if it is fixed or not used."""
    if not objective.needs_reference:
        return []
    match objective.reference:
        case knobs.FixedReference():
            return []
        case knobs.EveryN(n=n):
            return [f"π_ref ← π every {number(n)} steps"]
        case knobs.OnStagnation(patience=patience):
            return [f"π_ref ← π after {number(patience)} evaluations without a new best"]
        case knobs.EmaReference(alpha=alpha, n=n):
            mixture = f"{number(alpha)} π + {number(round(1 - alpha, 12))} π_ref"
            return [f"π_ref ← {mixture} every {number(n)} steps"]
        case _:
            assert_never(objective.reference)


def entropy_weight(entropy: knobs.EntropyBonus | knobs.AdaptiveEntropy) -> str:
    """Return the weight of the entropy bonus as a number, or c if it is adaptive."""
    return number(entropy.coef) if isinstance(entropy, knobs.EntropyBonus) else "c"


def entropy_weight_definition(entropy: knobs.Entropy) -> list[str]:
    """Return the rule that adapts c to the entropy."""
    match entropy:
        case knobs.NoEntropyBonus() | knobs.EntropyBonus():
            return []
        case knobs.AdaptiveEntropy(target=target, step=step, coef=coef):
            condition = f"where mean(H_sampler) < {number(target)}"
            return [
                f"c = c′ where mean(H_sampler) ≤ {number(target)}, else 0",
                f"c′ = {number(coef)} at first",
                f"c′ ← c′ + {number(step)} {condition}, else max(c′ − {number(step)}, 0)",
            ]
        case _:
            assert_never(entropy)


def off_policy_definition(objective: Objective, *, subscript: str) -> list[str]:
    """Return the definitions of the mask M and of the gate gᵢₜ. `subscript` is that of the advantages."""
    return [*_mask(objective.off_policy_mask, subscript), *_gate(objective.router)]


def _mask(knob: knobs.OffPolicyMask, subscript: str) -> list[str]:
    match knob:
        case knobs.NoOffPolicyMask():
            return []
        case knobs.Opsm(delta=delta, source=source):
            mean = f"1/|oᵢ| ∑ₜ {log_probability_ratio(f'π_{source}', 'π')}"
            return [f"M{subscript} = 0 where A{subscript} < 0 and {mean} > {number(delta)}, else 1"]
        case _:
            assert_never(knob)


def _gate(knob: knobs.Router) -> list[str]:
    match knob:
        case knobs.NoRouterShift():
            return []
        case knobs.RouterShift(gamma_min=floor):
            return [
                f"gᵢₜ = sg[max(γᵢₜ, {number(floor)})]",
                "γᵢₜ = exp(−mean_experts(|log (p_new(e)/p_old(e))|))",
            ]
        case _:
            assert_never(knob)


MEANINGS = {
    "Mᵢ": "0 for a completion that the policy has moved too far away from",
    "Mᵢₜ": "0 for a token of a completion that the policy has moved too far away from",
    "gᵢₜ": "what the move of the experts' router leaves of a token's ratio",
    "γᵢₜ": "the same before its floor; 1 where no router has moved",
    "mean_experts": "mean over layers and over the experts e",
    "p_new": "router's probability of an expert under the present weights",
    "p_old": "router's probability of an expert when the step opened",
    "e": "an expert that read the token when the step opened",
    "β": "weight of the KL",
    "βᵢ": "weight of the KL for the domain of completion i",
    "c": "weight of the entropy bonus in use; loss per nat",
    "c′": "weight of the entropy bonus as it moves after each step; loss per nat",
}
"""Meanings of the symbols that this module writes."""
