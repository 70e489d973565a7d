"""Formulas of the averaged terms: the surrogate of ratio and advantage, and the KL estimate."""

import math
from typing import assert_never

from backend.config import knobs
from backend.config.formula.mathml import (
    Math,
    bracketed,
    call,
    constant,
    fraction,
    number,
    power,
    product,
    root,
    row,
    summed,
    symbol,
)
from backend.config.formula.symbols import (
    LIMIT,
    ONE,
    POLICY,
    TOKEN,
    advantage_of,
    limited,
    log_of,
)
from backend.config.objective import Objective

_X = symbol("x", "it")
_KL = symbol("k", "it")
_COV = symbol("cov", "it")
_TINY = number(1e-8)


def surrogate_term(objective: Objective) -> Math:
    """Return the term that is averaged over tokens or completions."""
    advantage, ratio = advantage_of(objective), _ratio(objective)
    plain = product(ratio, advantage)
    log_likelihood = product(advantage, row("log", POLICY))
    rule = objective.surrogate
    match rule:
        case knobs.NoSurrogate():
            return log_likelihood if objective.ratio.type == "none" else plain
        case knobs.PpoClip():
            low, high = number(1 - rule.eps_low), number(1 + rule.eps_high)
            return _pessimistic(plain, call("clip", ratio, low, high), advantage, rule.dual_clip)
        case knobs.BookSigned():
            return product(call("min", ratio, number(1 + rule.eps_high)), advantage)
        case knobs.WeightCap():
            capped = constant(call("min", ratio, number(rule.cap)))
            mask = [symbol("m", "it")] if rule.token_mask.type == "ppo" else []
            return product(*mask, capped, *(advantage, row("log", POLICY)._replace(is_atom=True)))
        case knobs.DivergenceMask():
            capped = constant(call("min", ratio, number(rule.cap)))
            return product(symbol("m", "it"), capped, advantage, row("log", POLICY)._replace(is_atom=True))
        case knobs.GeoToken():
            return plain
        case knobs.Sapo():
            gate = call("σ", product(symbol("τ"), row(ratio, "−", ONE)))
            return product(fraction(number(4), symbol("τ"))._replace(is_atom=True), gate, advantage)
        case knobs.ClipCov():
            clipped = call("clip", ratio, number(1 - rule.eps_low), number(1 + rule.eps_high))
            return product(symbol("m", "it"), _pessimistic(plain, clipped, advantage, 0))
        case knobs.Fipo():
            clipped = call("clip", ratio, number(1 - rule.eps_low), number(1 + rule.eps_high))
            weight = constant(symbol("f", "it"))
            return product(weight, _pessimistic(plain, clipped, advantage, rule.dual_clip))
        case knobs.KlCov():
            moved = bracketed(row("log", ratio), "||")
            return row(plain, "−", product(number(rule.coef), symbol("u", "it"), moved))
        case knobs.Vespo():
            return product(constant(symbol("φ", "i")), advantage, row("log", POLICY)._replace(is_atom=True))
        case knobs.DynamicClip():
            clipped = call("clip", ratio, symbol("l", "it"), symbol("h", "it"))
            return _pessimistic(plain, clipped, advantage, rule.dual_clip)
        case _:
            assert_never(rule)


def _pessimistic(plain: Math, clipped: Math, advantage: Math, dual_clip: float) -> Math:
    smaller = call("min", plain, product(clipped, advantage))
    if not dual_clip:
        return smaller
    return call("max", smaller, call("min", product(number(dual_clip), advantage), number(0)))


def surrogate_definitions(objective: Objective) -> list[Math]:
    """Return the gates, bounds and masks that the surrogate has symbols for."""
    ratio, advantage, rule = _ratio(objective), advantage_of(objective), objective.surrogate
    match rule:
        case knobs.Sapo():
            positive = row(symbol("τ"), "=", number(rule.tau_pos), "where", advantage, ">", number(0))
            return [row(positive, ",", "else", number(rule.tau_neg))]
        case knobs.DynamicClip():
            q = call("π_old", TOKEN)
            half = number(0.5)
            lower = root(call("max", row(ONE, "−", fraction(number(4 * rule.eps_low), q)), number(0)))
            upper = root(row(ONE, "+", fraction(number(4 * rule.eps_high), q)))
            return [
                row(symbol("l", "it"), "=", half, "+", half, lower),
                row(symbol("h", "it"), "=", call("min", row(half, "+", half, upper), number(rule.r_max))),
            ]
        case knobs.WeightCap(token_mask=knobs.PpoTokenMask() as mask):
            above = row(advantage, ">", number(0), "and", ratio, ">", number(1 + mask.eps_high))
            below = row(advantage, "<", number(0), "and", ratio, "<", number(1 - mask.eps_low))
            return [row(symbol("m", "it"), "=", number(0), "where", above, "or", below, ",", "else", ONE)]
        case knobs.ClipCov():
            low, high = number(rule.low), number(rule.high)
            band = row(
                "a share",
                number(rule.share),
                "of the tokens, at least one, drawn where",
                low,
                "<",
                _COV,
                "<",
                high,
            )
            silent = row(symbol("m", "it"), "=", number(0), "for", band, ",", "else", ONE)
            return [silent, _covariance(advantage)]
        case knobs.Fipo():
            return _influence(rule, ratio, advantage)
        case knobs.KlCov():
            top = row("a share", number(rule.share), "of the tokens, at least one, that of highest", _COV)
            held = row(symbol("u", "it"), "=", ONE, "for", top, ",", "else", number(0))
            return [held, _covariance(advantage)]
        case knobs.Vespo():
            upwards = row("where", advantage, "≥", number(0), ",", "else")
            positive, negative = (
                _gamma(symbol("ω", "i"), rule.k_pos, rule.lambda_pos),
                _gamma(symbol("ω", "i"), rule.k_neg, rule.lambda_neg),
            )
            limited = row(symbol("ω", "i"), "=", call("max", ratio, _TINY))
            return [row(symbol("φ", "i"), "=", positive, upwards, negative), limited]
        case knobs.DivergenceMask():
            return _divergence(rule, objective, advantage)
        case (
            knobs.NoSurrogate() | knobs.PpoClip() | knobs.BookSigned() | knobs.WeightCap() | knobs.GeoToken()
        ):
            return []
        case _:
            assert_never(rule)


def _covariance(advantage: Math) -> Math:
    """Return a token's part of the covariance of log-probability and advantage in the optimizer step."""
    opened = row("log", call("π_old", TOKEN))._replace(is_atom=True)
    centred = bracketed(row(opened, "−", call("mean", opened)))
    return row(_COV, "=", product(centred, bracketed(row(advantage, "−", call("mean", advantage)))))


def _influence(rule: knobs.Fipo, ratio: Math, advantage: Math) -> list[Math]:
    """Return the weight of a token by what has become of those after it."""
    weight, future, later = symbol("f", "it"), symbol("F", "it"), symbol("r", "i,t+k")
    decay = power(number(round(2 ** (-1 / rule.half_life), 12)), "k")
    plain = call("clip", call("exp", future), number(rule.low), number(rule.high))
    held = call("clip", plain, number(0.8), ONE)
    unsafe = row("where", advantage, "<", number(0), "and", ratio, ">", number(rule.safety))
    whose: list[Math | str] = ["without those above", number(rule.dual_clip)] if rule.dual_clip else []
    return [
        row(weight, "=", plain),
        row(weight, "=", held, unsafe),
        row(future, "=", summed("k", product(decay, row("log", later)._replace(is_atom=True))), *whose),
    ]


def _gamma(ratio: Math, k: float, rate: float) -> Math:
    power_of_ratio = product(number(k), row("log", ratio)._replace(is_atom=True))
    return call("exp", row(power_of_ratio, "+", product(number(rate), row(ONE, "−", ratio))))


def _divergence(rule: knobs.DivergenceMask, objective: Objective, advantage: Math) -> list[Math]:
    """Which tokens have left the trust region, and how far they have moved."""
    distance, new, old = symbol("D", "it"), symbol("p", "it"), symbol("q′", "it")
    above = row(advantage, ">", number(0), ",", new, ">", old, "and", distance, ">", number(rule.high))
    below = row(advantage, "<", number(0), ",", new, "<", old, "and", distance, ">", number(rule.low))
    if rule.measure == "tv":
        measured = bracketed(row(new, "−", old), "||")
    else:
        drawn = product(old, row("log", bracketed(fraction(old, new)))._replace(is_atom=True))
        odds = fraction(bracketed(row(ONE, "−", old, "+", _TINY)), bracketed(row(ONE, "−", new, "+", _TINY)))
        of_other_tokens = product(
            bracketed(row(ONE, "−", old)), row("log", bracketed(odds))._replace(is_atom=True)
        )
        measured = row(drawn, "+", of_other_tokens)
    return [
        row(symbol("m", "it"), "=", number(0), "where", above, "or", below, ",", "else", ONE),
        row(distance, "=", measured),
        row(new, "=", POLICY),
        row(old, "=", _denominator(objective)),
    ]


def _denominator(objective: Objective) -> Math:
    """Return the probability that ratios divide by."""
    match getattr(objective.ratio, "old", "recompute"):
        case "sampler":
            return call("π_sampler", TOKEN)
        case "current":
            return constant(POLICY)
        case _:
            return call("π_old", TOKEN)


def _ratio(objective: Objective) -> Math:
    return symbol("r", "i" if objective.ratio.is_shared else "it")


def kl_definitions(objective: Objective) -> list[Math]:
    """Return the estimate of the KL with its limits; nothing if the KL is not in the loss."""
    kl = objective.kl
    if isinstance(kl, knobs.NoKl) or objective.kl_in_reward:
        return []
    distance = row(_X, "=", log_of("π", "π_old" if kl.to == "old" else "π_ref"))
    match kl:
        case knobs.KlK1():
            return [row(_KL, "=", limited(_X)), distance]
        case knobs.KlK2():
            half = fraction(ONE, number(2))._replace(is_atom=True)
            return [row(_KL, "=", product(half, power(limited(_X), "2"))), distance]
        case knobs.KlK3():
            return [*_k3(_KL, kl.largest_k3), distance]
        case knobs.KlRatioK3():
            estimate = symbol("κ", "it")
            weighted = row(_KL, "=", product(_ratio(objective), estimate))
            return [weighted, *_k3(estimate, kl.largest_k3), distance]
        case knobs.KlRatioK1():
            return [row(_KL, "=", product(_ratio(objective), limited(_X))), distance]
        case _:
            assert_never(kl)


def _k3(name: Math, largest: float) -> list[Math]:
    """Return k3 up to its limit, and its tangent beyond, where exp would overflow."""
    near = row(call("exp", row("−", _X, gap="")), "+", _X, "−", ONE)
    rows = [row(name, "=", _at_most(near, largest))]
    if largest <= math.expm1(LIMIT) - LIMIT:
        return rows
    edge = call("exp", number(LIMIT))
    slope = bracketed(row(edge, "−", ONE))
    far = row(edge, "−", number(LIMIT + 1), "+", product(slope, row(number(-LIMIT), "−", _X)))
    return [*rows, row(name, "=", _at_most(far, largest), "where", _X, "<", number(-LIMIT))]


def _at_most(value: Math, largest: float) -> Math:
    return value if math.isinf(largest) else call("min", value, number(largest))


MEANINGS = {
    "σ": "the logistic function 1 / (1 + exp(−a))",
    "lᵢₜ": "lower bound of the ratio",
    "hᵢₜ": "upper bound of the ratio",
    "mᵢₜ": "0 for tokens that learn nothing from here on",
    "uᵢₜ": "1 for a token that is held back",
    "covᵢₜ": "what a token adds to the covariance of log-probability and advantage over the optimizer step",
    "fᵢₜ": "weight of a token by what has become of the tokens after it",
    "Fᵢₜ": "log-ratio of the token and those after it, discounted by distance; nats",
    "r_i,t+k": "the ratio k tokens later; 1 after the last token",
    "φᵢ": "weight of a completion: 1 where the policy has not moved, small where it has moved far",
    "ωᵢ": "the ratio, which keeps away from 0",
    "Dᵢₜ": "distance of the two policies at a token, as if it were either drawn or not",
    "pᵢₜ": "probability of a token under the policy that is trained",
    "q′ᵢₜ": "the same under the policy that the ratio compares with",
    "τ": "sharpness of the gate",
    "kᵢₜ": "estimate of the KL divergence at a token; nats",
    "κᵢₜ": "k3, an estimate of the KL divergence that is never negative; nats",
    "xᵢₜ": "log of the ratio of the two probabilities that the KL compares; nats",
}
"""Meanings of the symbols that this module writes."""
