"""Weights of a loss that differ between completions or follow what is measured, as parts of its formula."""

from collections.abc import Mapping
from typing import assert_never

from backend.config import knobs
from backend.config.formula.mathml import (
    Math,
    bracketed,
    call,
    constant,
    fraction,
    number,
    product,
    row,
    summed,
    symbol,
    word,
)
from backend.config.formula.symbols import LENGTH, log_of
from backend.config.objective import Objective

AnyKl = knobs.KlK1 | knobs.KlK2 | knobs.KlK3 | knobs.KlRatioK1 | knobs.KlRatioK3
_BETA = symbol("β")
_KL = symbol("KL")
_BONUS = symbol("c")


def kl_weight(kl: AnyKl) -> Math:
    """Return the weight of the KL: its number, or β if it is not a constant."""
    if isinstance(kl.coef, Mapping):
        return symbol("β", "i")
    return number(kl.coef) if kl.controller.type == "fixed" else _BETA


def kl_weight_definition(kl: knobs.Kl) -> list[Math]:
    """Definition of β, and how it changes."""
    if isinstance(kl, knobs.NoKl):
        return []
    by_domain = isinstance(kl.coef, Mapping)
    if not by_domain and kl.controller.type == "fixed":
        return []
    return [*_start(kl), *_course(kl.controller, symbol("β", "i") if by_domain else _BETA)]


def _start(kl: AnyKl) -> list[Math]:
    when = [] if kl.controller.type == "fixed" else ["at first"]
    if not isinstance(kl.coef, Mapping):
        return [row(_BETA, "=", number(kl.coef), *when)]
    return [
        row(symbol("β", "i"), "=", number(coef), "for", word(domain), *when)
        for domain, coef in kl.coef.items()
    ]


def _course(controller: knobs.Controller, weight: Math) -> list[Math]:
    match controller:
        case knobs.FixedCoefficient():
            return []
        case knobs.DualController(target=target):
            high, low = number(round(1.5 * target, 12)), number(target / 1.5)
            return [
                row(weight, "←", product(number(2), weight), "where", _KL, ">", high),
                row(weight, "←", fraction(weight, number(2)), "where", _KL, "<", low),
            ]
        case knobs.HorizonController(target=target, horizon=horizon):
            error = row(fraction(_KL, number(target)), "−", number(1))
            clipped = call("clip", error, number(-0.2), number(0.2))
            change = row(number(1), "+", clipped, fraction(symbol("B", "step"), number(horizon)))
            return [row(weight, "←", product(weight, bracketed(change)))]
        case _:
            assert_never(controller)


def reference_definition(objective: Objective) -> list[Math]:
    """Return the rule by which π_ref follows π; empty without a reference."""
    if not objective.needs_reference:
        return []
    reference, policy = symbol("π", "ref"), symbol("π")
    match objective.reference:
        case knobs.FixedReference():
            return []
        case knobs.EveryN(n=n):
            return [row(reference, "←", policy, "every", number(n), "steps")]
        case knobs.OnStagnation(patience=patience):
            when = row("after", number(patience), "evaluations without a new best")
            return [row(reference, "←", policy, when)]
        case knobs.EmaReference(alpha=alpha, n=n):
            mixed = row(product(number(alpha), policy), "+", product(number(round(1 - alpha, 12)), reference))
            return [row(reference, "←", mixed, "every", number(n), "steps")]
        case _:
            assert_never(objective.reference)


def entropy_weight(entropy: knobs.EntropyBonus | knobs.AdaptiveEntropy) -> Math:
    """Return the weight of the entropy bonus: its number, or c if it is adaptive."""
    return number(entropy.coef) if isinstance(entropy, knobs.EntropyBonus) else _BONUS


def entropy_weight_definition(entropy: knobs.Entropy) -> list[Math]:
    """Return the rule by which c follows the entropy."""
    match entropy:
        case knobs.NoEntropyBonus() | knobs.EntropyBonus():
            return []
        case knobs.AdaptiveEntropy(target=target, step=step, coef=coef):
            mean, target_entropy = call("mean", symbol("H", "sampler")), number(target)
            moved, first = symbol("c′"), number(coef)
            lower = call("max", row(moved, "−", number(step)), number(0))
            return [
                row(_BONUS, "=", moved, "where", mean, "≤", target_entropy, ",", "else", number(0)),
                row(moved, "=", first, "at first"),
                row(
                    moved,
                    "←",
                    row(moved, "+", number(step)),
                    "where",
                    mean,
                    "<",
                    target_entropy,
                    ",",
                    "else",
                    lower,
                ),
            ]
        case _:
            assert_never(entropy)


def off_policy_definition(objective: Objective, *, subscript: str) -> list[Math]:
    """Definitions of the mask M and of the gate gᵢₜ on a ratio; `subscript` is that of the advantages."""
    return [*_mask(objective.off_policy_mask, subscript), *_gate(objective.router)]


def _mask(knob: knobs.OffPolicyMask, subscript: str) -> list[Math]:
    match knob:
        case knobs.NoOffPolicyMask():
            return []
        case knobs.Opsm(delta=delta, source=source):
            mean = row(fraction(number(1), LENGTH), summed("t", log_of(f"π_{source}", "π")))
            negative = row(symbol("A", subscript), "<", number(0), "and", mean, ">", number(delta))
            return [row(symbol("M", subscript), "=", number(0), "where", negative, ",", "else", number(1))]
        case _:
            assert_never(knob)


def _gate(knob: knobs.Router) -> list[Math]:
    match knob:
        case knobs.NoRouterShift():
            return []
        case knobs.RouterShift(gamma_min=floor):
            move = fraction(call("p_new", symbol("e")), call("p_old", symbol("e")))
            shift = row("−", call("mean_experts", bracketed(row("log", move), "||")), gap="")
            gamma = row(symbol("γ", "it"), "=", call("exp", shift))
            return [
                row(symbol("g", "it"), "=", constant(call("max", symbol("γ", "it"), number(floor)))),
                gamma,
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
