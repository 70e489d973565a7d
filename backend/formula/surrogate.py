"""What is averaged: the surrogate of ratio and advantage, and the estimate of the KL divergence."""

from typing import assert_never

from backend.config import knobs
from backend.config.objective import Objective
from backend.formula.mathml import Math, bracketed, call, fraction, number, product, root, row, symbol
from backend.formula.symbols import ADVANTAGE, ONE, PER_COMPLETION, POLICY, is_per_token


def surrogate_term(objective: Objective) -> Math:
    advantage = symbol("A", "it") if is_per_token(objective) else ADVANTAGE
    ratio = symbol("r", "i" if objective.ratio.type in PER_COMPLETION else "it")
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
            weight = bracketed(call("min", ratio, number(rule.cap)), "[]")
            capped = row("sg", weight, gap="")._replace(is_atom=True)
            mask = [symbol("m", "it")] if rule.token_mask.type == "ppo" else []
            return product(*mask, capped, *(advantage, row("log", POLICY)._replace(is_atom=True)))
        case knobs.GeoToken():
            return plain
        case knobs.Sapo():
            gate = call("σ", product(symbol("τ"), row(ratio, "−", ONE)))
            return product(fraction(number(4), symbol("τ"))._replace(is_atom=True), gate, advantage)
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


def surrogate_definitions(rule: knobs.Surrogate) -> list[Math]:
    ratio, advantage = symbol("r", "it"), symbol("A")
    match rule:
        case knobs.Sapo():
            positive = row(symbol("τ"), "=", number(rule.tau_pos), "where", advantage, ">", number(0))
            return [row(positive, ",", "else", number(rule.tau_neg))]
        case knobs.DynamicClip():
            q = call("π_old", symbol("o", "it"))
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
        case _:
            return []


def kl_definitions(objective: Objective) -> list[Math]:
    kl = objective.kl
    if isinstance(kl, knobs.NoKl) or objective.kl_in_reward:
        return []
    x = symbol("x", "it")
    k3 = row(call("exp", row("−", x, gap="")), "+", x, "−", ONE)
    ratio = symbol("r", "i" if objective.ratio.type in PER_COMPLETION else "it")
    estimates = {
        "k1": x,
        "k2": row(fraction(ONE, number(2)), symbol("x²", "it")),
        "k3": k3,
        "r_k3": product(ratio, k3),
        "r_k1": product(ratio, x),
    }
    anchor = call("π_old" if kl.to == "old" else "π_ref", symbol("o", "it"))
    distance = row("log", bracketed(fraction(POLICY, anchor)))
    return [row(symbol("k", "it"), "=", estimates[kl.type]), row(x, "=", distance)]
